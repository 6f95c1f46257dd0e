# Prints the nodes of each file named on standard input, as CPython sees them:
# the oracle of TestAgainstCPython.
import ast, sys, warnings

warnings.simplefilter("ignore")
KINDS = {
    "Name": "Name", "Attribute": "Attribute", "Call": "Call", "BinOp": "Binary", "Lambda": "Lambda",
    "IfExp": "Cond", "BoolOp": "Bool", "Compare": "Compare", "Subscript": "Subscript", "Dict": "Dict",
    "ListComp": "Comp", "SetComp": "Comp", "DictComp": "Comp", "GeneratorExp": "Comp", "Await": "Await",
    "Yield": "Yield", "YieldFrom": "Yield", "NamedExpr": "Walrus", "UnaryOp": "Unary",
    "Expr": "ExprStmt", "Assign": "Assign", "AugAssign": "AugAssign", "AnnAssign": "AnnAssign",
    "Return": "Return", "Raise": "Raise", "Delete": "Delete", "Pass": "Jump", "Break": "Jump",
    "Continue": "Jump", "Import": "Import", "ImportFrom": "Import", "Global": "Scope", "Nonlocal": "Scope",
    "Assert": "Assert", "If": "If", "For": "For", "AsyncFor": "For", "While": "While", "Try": "Try",
    "TryStar": "Try", "With": "With", "AsyncWith": "With", "FunctionDef": "Function",
    "AsyncFunctionDef": "Function", "ClassDef": "Class", "Match": "Match",
}
STRINGS = {"JoinedStr", "FormattedValue"}
OLD_FSTRINGS = sys.version_info < (3, 12)  # positions within f-strings are wrong before


def visit(node, out, in_pattern):
    kind = type(node).__name__
    if kind.startswith("Match") and kind != "Match" or kind in ("TypeVar", "ParamSpec", "TypeVarTuple"):
        return
    if OLD_FSTRINGS and kind in STRINGS:
        return
    if kind in KINDS:
        line = node.lineno
        if kind == "GeneratorExp":  # CPython counts the brackets of a call as its own
            out.append("generator")
        elif getattr(node, "decorator_list", None):
            line = node.decorator_list[0].lineno
            out.append("%d %s" % (line, KINDS[kind]))
        else:
            out.append("%d:%d %s" % (line, node.col_offset, KINDS[kind]))
    for child in ast.iter_child_nodes(node):
        visit(child, out, in_pattern)


print("fstrings" if not OLD_FSTRINGS else "")
for name in sys.stdin.read().split("\n"):
    if not name:
        continue
    try:
        data = open(name, "rb").read()
        tree = ast.parse(data)
    except Exception:
        print("!", name)
        continue
    sys.setrecursionlimit(20000)
    out = []
    visit(tree, out, False)
    print("=", name)
    print("\n".join(sorted(out)))
