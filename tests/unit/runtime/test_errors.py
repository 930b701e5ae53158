import runtime.errors
from runtime.errors import TrimtabError


def tree(kind: type[TrimtabError], depth: int = 0) -> list[tuple[str, int]]:
    below = [
        line for sub in kind.__subclasses__() if sub.__module__ == kind.__module__ for line in tree(sub, depth + 1)
    ]
    return [(kind.__name__, kind.exit_code), *below]


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    drawn = [
        line.strip("│├└─ ").split()[:2] for line in (runtime.errors.__doc__ or "").splitlines()[2:] if line.strip()
    ]
    assert [(name, int(code)) for name, code in drawn] == tree(TrimtabError)
