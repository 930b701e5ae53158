"""A tree is drawn within its width, and a terminal is told nothing that it would obey."""

from lab.explain.tree import Branch, draw, table

LONG = "word " * 60


def test_no_line_is_wider_than_asked():
    tree = Branch(LONG, (Branch(LONG, (Branch(LONG), Branch("x" * 200, fixed=True))), Branch(LONG)))
    lines = list(draw(tree, 60))
    assert max(len(line) for line in lines) <= 60
    assert sum("word" in line for line in lines) > 20


def test_all_words_are_kept_in_order():
    words = [f"w{number}" for number in range(100)]
    text = " ".join(draw(Branch("root", (Branch(" ".join(words)), Branch("last"))), 50))
    assert [word for word in text.split() if word.startswith("w")] == words


def test_what_a_terminal_would_obey_is_a_question_mark():
    (line,) = draw(Branch("a\x1b[31mb\nc"))
    assert line == "a?[31mb?c"


def test_colours_only_when_asked():
    tree = Branch("root", (Branch("bad", tone="bad"),), "head")
    assert not any("\x1b" in line for line in draw(tree))
    assert list(draw(tree, colour=True)) == ["\x1b[1mroot\x1b[0m", "└─ \x1b[31mbad\x1b[0m"]


def test_a_table_stands_in_columns():
    rows = [branch.text for branch in table(("name", "n"), [("a", "1"), ("longer", "22")])]
    assert rows == ["name    n", "a       1", "longer  22"]
