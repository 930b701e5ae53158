"""Which cgroup a process is in, as `/proc/<pid>/cgroup` tells it to a reader in a cgroup namespace of its own."""

from hostfs.cgroup import check_group


def parse_membership(text: str) -> str | None:
    """The path in the `0::` line, which is the cgroup v2 one; None without such a line.

    Source: cgroups(7). A removed group of a dead process has ` (deleted)` behind it.
    """
    for line in text.split("\n"):
        if line.startswith("0::/"):
            return line.removeprefix("0::").removesuffix(" (deleted)")
    return None


def absolute_group(seen: str, own_group: str | None) -> str:
    """The absolute group of a process whose path is `seen` by a reader that is itself in `own_group` (absolute), the
    root of its cgroup namespace: the path is relative to that and leads upwards with leading `..` components.

    Raises ValueError where the own group is not known or the path cannot be right: never a path with `..` in it.
    Source: cgroup_namespaces(7).
    """
    if own_group is None:
        raise ValueError(f"cgroup {seen!r} is relative to the reader's own, which is not known")
    own, steps = _components(own_group), _components(seen)
    if own:
        check_group("/".join(own))
    ups = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    if ups > len(own):
        raise ValueError(f"cgroup {seen!r} leads above the root from {own_group!r}")
    absolute = "/".join(own[: len(own) - ups] + steps[ups:])
    return f"/{check_group(absolute)}" if absolute else "/"


def _components(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"cgroup {path!r} does not begin with /")
    return path[1:].split("/") if path != "/" else []
