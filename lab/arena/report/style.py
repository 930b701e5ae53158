"""Owns how the page looks: its style sheet, for light and dark, wide and narrow, screen and paper."""

from typing import Final

CSS: Final = """
:root{color-scheme:light dark;--bg:#fbfbf9;--card:#fff;--ink:#1b2129;--soft:#5b6570;--rule:#dfe2e6;--grid:#e8eaed;
--tint1:#eef1f5;--tint2:#f6f0e6;--good:#0a7a52;--bad:#b3401a;--accent:#0072b2;--objective:#a11d33}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--card:#1b2026;--ink:#e6e9ed;--soft:#9da7b3;--rule:#323a44;
--grid:#2a313a;--tint1:#232b35;--tint2:#2d2a24;--good:#4cd3a0;--bad:#ff936b;--accent:#58b1ff;--objective:#ff8095}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:19px;margin:40px 0 8px}h3{font-size:14.5px;margin:22px 0 4px}
p{margin:6px 0;max-width:74ch}.lead{font-size:17px}.soft,figcaption,.note{color:var(--soft)}
.note,figcaption{font-size:13px}code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}
figure{margin:8px 0 4px}.scroll{overflow-x:auto}.scroll svg{display:block;width:100%;min-width:640px;height:auto}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:8px 24px}.pair .scroll svg{min-width:340px}
@media(max-width:760px){.pair{grid-template-columns:1fr}main{padding:18px 12px 40px}h1{font-size:22px}}
details.scenario{background:var(--card);border:1px solid var(--rule);border-radius:8px;margin:10px 0;padding:0 16px}
details.scenario[open]{padding-bottom:16px}
summary{cursor:pointer;padding:11px 0;display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;list-style:none}
summary::-webkit-details-marker{display:none}summary::before{content:"▸";color:var(--soft)}
details[open]>summary::before{content:"▾"}summary b{font-size:16px}summary .end{margin-left:auto;font-size:13px}
table{border-collapse:collapse;font-size:12.5px;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:right;padding:4px 7px;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;color:var(--soft);vertical-align:bottom}th:first-child,td:first-child{text-align:left}
tr.ours td{font-weight:650}tr.search td{color:var(--soft);font-style:italic}
td.best{box-shadow:inset 0 -2px var(--good)}.plus{color:var(--good)}.minus{color:var(--bad)}
.legend{position:sticky;top:0;z-index:1;background:var(--bg);border-bottom:1px solid var(--rule);
padding:8px 0;margin:14px 0;
display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px}
.legend label{display:flex;gap:6px;align-items:center;cursor:pointer}.legend svg{width:26px;height:10px}
.legend input{margin:0;accent-color:var(--accent)}button{font:inherit;font-size:13px;color:var(--accent);
background:none;
border:1px solid var(--rule);border-radius:5px;padding:2px 10px;cursor:pointer}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;font-size:14px}dt{color:var(--soft)}
dd{margin:0;min-width:0}
@media(max-width:520px){dl{grid-template-columns:1fr}dt{margin-top:6px}}
svg text{font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}
svg .tick,svg .phase-name,svg .axis-name{fill:var(--soft);font-size:11px}svg .panel{font-weight:600}
svg .name{font-size:12px}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}.objective{stroke:var(--objective);stroke-dasharray:5 4;
stroke-width:1.3}
svg .objective-name{fill:var(--objective);font-size:11px;paint-order:stroke;stroke:var(--card);stroke-width:3px}
.phase1{fill:var(--tint1)}.phase2{fill:var(--tint2)}
.line{fill:none;stroke:var(--c);stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}.line.main{stroke-width:2.4}
.band{fill:var(--c);opacity:.16}.bar{fill:var(--c)}.bar.pale{opacity:.45}
.whisker{stroke:var(--ink);stroke-width:1.2;fill:none}[class^="whisker s"]{stroke:var(--c);stroke-width:1.6}
.mark{fill:var(--c);stroke:var(--card)}.hollow{fill:var(--card);stroke:var(--ink);stroke-width:1.2}
.cell{fill:var(--accent)}.h0{opacity:.25}.h1{opacity:.5}.h2{opacity:.75}
@media print{.legend{position:static}button{display:none}details.scenario{break-inside:avoid-page}}
"""

SCRIPT: Final = """
document.getElementById('all').addEventListener('click',function(){
var d=document.querySelectorAll('details.scenario'),o=!d[0].open;d.forEach(function(e){e.open=o})});
"""
"""Opens and closes all sections; the page can be read without it."""


def toggles(slots: list[int]) -> str:
    """The rules by which a policy's box in the legend hides its lines; a browser that does not know them shows all."""
    return "".join(f"body:has(#b{slot}:not(:checked)) .t{slot}{{display:none}}" for slot in slots)
