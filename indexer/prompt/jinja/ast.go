package jinja

// expr is an expression of a template.
type expr interface {
	eval(st *state) Value
}

// stmt is a statement of a template.
type stmt interface {
	exec(st *state) signal
}

// signal is how a statement ended.
type signal uint8

const (
	goOn signal = iota
	doBreak
	doContinue
)

// Expressions.
type (
	constant struct{ v Value }
	name     struct {
		id   int
		text string
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, vals []expr }
	attr     struct {
		of   expr
		name string
	}
	item struct {
		of, key expr
	}
	slice struct {
		of, start, stop, step expr // nil = left out
	}
	call struct {
		fn   expr
		args callArgs
		line int
	}
	filterExpr struct {
		of   expr // nil in filter blocks
		name string
		fn   filterFunc
		args callArgs
	}
	testExpr struct {
		of     expr
		fn     testFunc
		args   callArgs
		negate bool
	}
	notExpr struct{ of expr }
	negExpr struct {
		of    expr
		minus bool
	}
	andExpr struct{ a, b expr }
	orExpr  struct{ a, b expr }
	binary  struct {
		op   string
		a, b expr
	}
	// plus is a chain of additions, tilde one of string concatenations.
	plus    struct{ parts []expr }
	tilde   struct{ parts []expr }
	compare struct {
		first expr
		ops   []string
		rest  []expr
	}
	condExpr struct{ test, then, other expr } // other may be nil
)

// callArgs are the arguments of a call, a filter or a test.
type callArgs struct {
	pos   []expr
	names []string // of the last len(names) arguments
	vals  []expr
}

// Statements.
type (
	dataStmt   struct{ text string }
	outputStmt struct{ of expr }
	ifStmt     struct {
		tests  []expr
		bodies [][]stmt // one more than tests when there is an else
	}
	forStmt struct {
		target []int // more than one name unpacks
		iter   expr
		filter expr // nil when there is none
		body   []stmt
		other  []stmt
	}
	setStmt struct {
		targets []target
		value   expr   // nil for a block
		body    []stmt // block form
		filters []*filterExpr
	}
	macroStmt struct {
		id   int
		name string
		args []int
		defs []expr // aligned with args, nil = no default
		body []stmt
		// usesCaller: the body mentions caller, so that call blocks may use it.
		usesCaller bool
	}
	// callStmt calls a macro with its body as caller().
	callStmt struct {
		call *call
		body *macroStmt
	}
	filterStmt struct {
		filters []*filterExpr
		body    []stmt
	}
	withStmt struct {
		ids    []int
		values []expr
		body   []stmt
	}
	exprStmt  struct{ of expr } // {% do %}
	scopeStmt struct{ body []stmt }
	jumpStmt  struct{ sig signal }
)

// target is what a set assigns to: a name, or an attribute of a namespace.
type target struct {
	id   int
	attr string
}
