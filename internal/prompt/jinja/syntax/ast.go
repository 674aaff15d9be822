package syntax

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// Expr is an expression of a template: one of the types below.
type Expr interface{ expr() }

// Stmt is a statement of a template: one of the types below.
type Stmt interface{ stmt() }

// Expressions. A nil Expr is one that was left out.
type (
	// Constant is a literal.
	Constant struct{ Value value.Value }
	// Name is a variable; ID is its number in the tree.
	Name struct {
		ID   int
		Text string
	}
	// List is a list or a tuple.
	List struct {
		Items []Expr
		Tuple bool
	}
	// Dict has as many Vals as Keys.
	Dict struct{ Keys, Vals []Expr }
	// Attr is Of.Name.
	Attr struct {
		Of   Expr
		Name string
	}
	// Item is Of[Key].
	Item struct{ Of, Key Expr }
	// Slice is Of[Start:Stop:Step].
	Slice struct{ Of, Start, Stop, Step Expr }
	// Call is Fn(Args).
	Call struct {
		Fn   Expr
		Args Args
		Line int
	}
	// Filter is Of|name(Args); ID is the place in Tree.Filters.
	Filter struct {
		Of   Expr
		ID   int
		Args Args
	}
	// Test is Of is name(Args); ID is the place in Tree.Tests.
	Test struct {
		Of     Expr
		ID     int
		Args   Args
		Negate bool
	}
	// Not is not Of.
	Not struct{ Of Expr }
	// Sign is -Of or +Of.
	Sign struct {
		Of    Expr
		Minus bool
	}
	// And is A if A is false, else B.
	And struct{ A, B Expr }
	// Or is A if A is true, else B.
	Or struct{ A, B Expr }
	// Binary is an arithmetic operation but a sum.
	Binary struct {
		Op   string
		A, B Expr
	}
	// Sum is a chain of additions.
	Sum struct{ Parts []Expr }
	// Concat is a chain of "~".
	Concat struct{ Parts []Expr }
	// Compare is a chain of comparisons, with as many Ops as Rest.
	Compare struct {
		First Expr
		Ops   []string
		Rest  []Expr
	}
	// Left is an expression that this package does not have. It fails when it is reached.
	Left struct {
		What string
		Line int
	}
	// Cond is Then if Test else Else.
	Cond struct{ Test, Then, Else Expr }
)

// Args are the arguments of a call, a filter or a test.
type Args struct {
	Pos   []Expr
	Names []string // of Vals
	Vals  []Expr
}

// Statements.
type (
	// Data is text between tags.
	Data struct{ Text string }
	// Output prints.
	Output struct{ Of Expr }
	// If has one more body than tests if there is an else.
	If struct {
		Tests  []Expr
		Bodies [][]Stmt
	}
	// For is a loop.
	For struct {
		Target []int // more than one name unpacks
		Iter   Expr
		Keep   Expr // the condition of the loop, or nil
		Body   []Stmt
		Else   []Stmt
		// Recursive is true if the body may call loop with further items.
		Recursive bool
	}
	// Set assigns Value, or the output of Body if Value is nil.
	Set struct {
		Targets []Target
		Value   Expr
		Body    []Stmt
		Filters []*Filter // applied to the output of Body; their Of is nil
	}
	// Macro defines one.
	Macro struct {
		ID       int
		Name     string
		Args     []int
		Defaults []Expr // aligned with Args, nil = none
		Body     []Stmt
		// UsesCaller is true if the body mentions caller, so that call blocks may use the macro.
		UsesCaller bool
	}
	// CallBlock calls a macro with Body as caller().
	CallBlock struct {
		Call *Call
		Body *Macro
	}
	// Scope is a body that runs in a new scope.
	Scope struct{ Body []Stmt }
	// With is a body with Names, as many as Vals.
	With struct {
		Names []int
		Vals  []Expr
		Body  []Stmt
	}
	// FilterBlock prints its body through Filters; their Of is nil.
	FilterBlock struct {
		Filters []*Filter
		Body    []Stmt
	}
	// Jump is break or continue.
	Jump struct{ Break bool }
)

// Target is the target of a Set: a name, or an attribute of a namespace.
type Target struct {
	ID   int
	Attr string // "" for the name itself
}

// Use is a filter, a test or a method that a template uses.
type Use struct {
	Name string
	Line int // of its first use
}

func (*Constant) expr() {}
func (*Left) expr()     {}
func (*Name) expr()     {}
func (*List) expr()     {}
func (*Dict) expr()     {}
func (*Attr) expr()     {}
func (*Item) expr()     {}
func (*Slice) expr()    {}
func (*Call) expr()     {}
func (*Filter) expr()   {}
func (*Test) expr()     {}
func (*Not) expr()      {}
func (*Sign) expr()     {}
func (*And) expr()      {}
func (*Or) expr()       {}
func (*Binary) expr()   {}
func (*Sum) expr()      {}
func (*Concat) expr()   {}
func (*Compare) expr()  {}
func (*Cond) expr()     {}

func (*Data) stmt()        {}
func (*Output) stmt()      {}
func (*If) stmt()          {}
func (*For) stmt()         {}
func (*Set) stmt()         {}
func (*Macro) stmt()       {}
func (*CallBlock) stmt()   {}
func (*Scope) stmt()       {}
func (*With) stmt()        {}
func (*FilterBlock) stmt() {}
func (*Jump) stmt()        {}
