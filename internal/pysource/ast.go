package pysource

// Node is a statement, an expression or one of their parts. Positions are byte
// offsets into File.Src; ID numbers the nodes of one file from 0.
type Node interface {
	Pos() int
	End() int
	ID() int
}

// Expr is an expression. Stmt is a statement.
type (
	Expr interface {
		Node
		expr()
	}
	Stmt interface {
		Node
		stmt()
	}
)

// at is what all nodes share.
type at struct{ pos, end, id int32 }

func (a *at) Pos() int { return int(a.pos) }
func (a *at) End() int { return int(a.end) }
func (a *at) ID() int  { return int(a.id) }

type exprAt struct{ at }

func (*exprAt) expr() {}

type stmtAt struct{ at }

func (*stmtAt) stmt() {}

// Expressions.
type (
	// Name is an identifier.
	Name struct {
		exprAt
		Ident string
	}
	// Number is a numeric literal as written.
	Number struct {
		exprAt
		Text string
	}
	// Str is one or more adjacent string literals. Value is their text with the
	// escapes resolved; of an f-string or t-string, Value has the literal parts
	// with a NUL for each placeholder, and Parts the placeholders' expressions.
	Str struct {
		exprAt
		Value     string
		Bytes     bool
		Formatted bool
		Parts     []Expr
	}
	// Constant is None, True, False or the ellipsis.
	Constant struct {
		exprAt
		Text string
	}
	// Attribute is X.Name.
	Attribute struct {
		exprAt
		X       Expr
		Name    string
		NamePos int
	}
	// Call is Fun(Args, Keywords). Starred arguments are in Args; of the
	// keywords, the name of **x is empty.
	Call struct {
		exprAt
		Fun      Expr
		Args     []Expr
		Keywords []*Keyword
	}
	// Keyword is name=value in a call or a class definition.
	Keyword struct {
		at
		Name  string
		Value Expr
	}
	// Subscript is X[Index].
	Subscript struct {
		exprAt
		X, Index Expr
	}
	// Slice is lo:hi:step within a subscript; missing parts are nil.
	Slice struct {
		exprAt
		Lo, Hi, Step Expr
	}
	// Sequence is a tuple, list or set display: Kind is '(', '[' or '{'.
	Sequence struct {
		exprAt
		Kind byte
		Elts []Expr
	}
	// Dict is a dictionary display. The key of **x is nil.
	Dict struct {
		exprAt
		Keys, Values []Expr
	}
	// Unary is -x, +x, ~x or not x.
	Unary struct {
		exprAt
		Op string
		X  Expr
	}
	// Binary is an arithmetic or bitwise operation.
	Binary struct {
		exprAt
		Op   string
		L, R Expr
	}
	// Bool is a chain of `and` or of `or`.
	Bool struct {
		exprAt
		Op string
		Xs []Expr
	}
	// Compare is a chain of comparisons: Xs[0] Ops[0] Xs[1] Ops[1] …
	Compare struct {
		exprAt
		Ops []string
		Xs  []Expr
	}
	// Cond is Then if Test else Else.
	Cond struct {
		exprAt
		Test, Then, Else Expr
	}
	// Lambda is an anonymous function.
	Lambda struct {
		exprAt
		Params []*Param
		Body   Expr
	}
	// Comp is a comprehension or generator expression: Kind is '[', '{', '(' or
	// ':' for a dictionary, whose value is Value.
	Comp struct {
		exprAt
		Kind       byte
		Elt, Value Expr
		Fors       []*CompFor
	}
	// CompFor is one `for … in … if …` of a comprehension.
	CompFor struct {
		at
		Target, Iter Expr
		Ifs          []Expr
	}
	// Await is await X.
	Await struct {
		exprAt
		X Expr
	}
	// Yield is yield X or yield from X.
	Yield struct {
		exprAt
		X    Expr
		From bool
	}
	// Walrus is Target := Value.
	Walrus struct {
		exprAt
		Target, Value Expr
	}
	// Starred is *X, or **X in a pattern.
	Starred struct {
		exprAt
		X Expr
	}
	// Bad stands for what could not be read.
	Bad struct{ exprAt }
)

// Param is a parameter of a function: Star is "", "*" or "**". Markers (a bare
// * or /) are left out.
type Param struct {
	at
	Name        string
	Star        string
	KeywordOnly bool
	Ann         Expr
	Default     Expr
}

// Statements.
type (
	// ExprStmt is an expression as a statement. Python 2's print and exec are
	// calls of these names.
	ExprStmt struct {
		stmtAt
		X Expr
	}
	// Assign is targets = value; several targets are a = b = value.
	Assign struct {
		stmtAt
		Targets []Expr
		Value   Expr
	}
	// AugAssign is Target Op= Value; Op has no "=".
	AugAssign struct {
		stmtAt
		Op            string
		Target, Value Expr
	}
	// AnnAssign is Target: Ann = Value, Value may be nil.
	AnnAssign struct {
		stmtAt
		Target, Ann, Value Expr
	}
	// Return returns X or nothing.
	Return struct {
		stmtAt
		X Expr
	}
	// Raise raises X (nil: again).
	Raise struct {
		stmtAt
		X, From Expr
	}
	// Delete is del Xs.
	Delete struct {
		stmtAt
		Xs []Expr
	}
	// Jump is pass, break or continue.
	Jump struct {
		stmtAt
		Word string
	}
	// Import is import a.b as c, …; From and Level are set by from . import.
	Import struct {
		stmtAt
		IsFrom bool
		Module string
		Level  int
		Star   bool
		Names  []Alias
	}
	// Scope is global or nonlocal.
	Scope struct {
		stmtAt
		Word  string
		Names []string
	}
	// Assert is assert Test, Msg.
	Assert struct {
		stmtAt
		Test, Msg Expr
	}
	// If has an elif as the only statement of Else.
	If struct {
		stmtAt
		Test       Expr
		Body, Else []Stmt
	}
	// For is for Target in Iter.
	For struct {
		stmtAt
		Target, Iter Expr
		Body, Else   []Stmt
	}
	// While is while Test.
	While struct {
		stmtAt
		Test       Expr
		Body, Else []Stmt
	}
	// Try is try with its handlers.
	Try struct {
		stmtAt
		Body     []Stmt
		Handlers []*Handler
		Else     []Stmt
		Finally  []Stmt
	}
	// With is with items: body.
	With struct {
		stmtAt
		Items []*WithItem
		Body  []Stmt
	}
	// Function is def, with its decorators.
	Function struct {
		stmtAt
		Name       string
		NamePos    int
		Async      bool
		Params     []*Param
		Returns    Expr
		Decorators []Expr
		Body       []Stmt
	}
	// Class is a class definition.
	Class struct {
		stmtAt
		Name       string
		NamePos    int
		Bases      []Expr
		Keywords   []*Keyword
		Decorators []Expr
		Body       []Stmt
	}
	// Match is a match statement.
	Match struct {
		stmtAt
		Subject Expr
		Cases   []*Case
	}
	// TypeAlias is type Name = Value.
	TypeAlias struct {
		stmtAt
		Name  string
		Value Expr
	}
	// BadStmt is a logical line that could not be read.
	BadStmt struct{ stmtAt }
)

// Alias is one name of an import. As is the bound name or "".
type Alias struct {
	Name, As string
	Pos      int
}

// Handler is one except clause. Type is nil where it catches everything.
type Handler struct {
	at
	Type Expr
	Name string
	Body []Stmt
}

// WithItem is X as Target.
type WithItem struct {
	at
	X, Target Expr
}

// Case is one case of a match. Names bound by the pattern are Names in it.
type Case struct {
	at
	Pattern, Guard Expr
	Body           []Stmt
}
