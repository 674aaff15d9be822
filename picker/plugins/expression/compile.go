package expression

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// Limits on expressions.
const (
	maxLength = 4096 // characters
	maxCost   = 5000 // units of CEL's cost model, for one endpoint
)

// Error is one problem of an expression. Message continues "the expression".
type Error struct {
	Message string
	Hint    string // how to fix it, or ""
	// Line starts at 1 and Column at 0, in characters. Line 0 means the whole expression.
	Line, Column int
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errors are the problems of one expression.
type Errors []Error

// Error implements error.
func (list Errors) Error() string {
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = "expression " + e.Message
	}
	return strings.Join(lines, "\n")
}

func problem(format string, a ...any) Errors { return Errors{{Message: fmt.Sprintf(format, a...)}} }

// environment is built for the first expression: processes without any do not pay for it.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	opts := []cel.EnvOption{cel.ClearMacros(), cel.CrossTypeNumericComparisons(true)}
	for _, v := range variables {
		opts = append(opts, cel.Variable(v.name, v.typ))
	}
	return cel.NewEnv(opts...)
})

// compile returns the program of an expression whose result has one of the types. Other errors than
// [Errors] are defects of this package.
func compile(source string, results ...*cel.Type) (cel.Program, error) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, problem("is required")
	case len(source) > maxLength:
		return nil, problem("has %d characters, the limit is %d", len(source), maxLength)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	tree, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, faults(source, issues)
	}
	if !oneOf(tree.OutputType(), results) {
		return nil, problem("must result in %s, not %s", typeNames(results), tree.OutputType())
	}
	cost, err := env.EstimateCost(tree, sizes{})
	if err != nil {
		return nil, problem("has no known cost: %v", err)
	}
	if cost.Max > maxCost {
		return nil, problem("may cost %d units, the limit is %d: shorten it", cost.Max, maxCost)
	}
	program, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, problem("cannot be evaluated: %v", err)
	}
	return program, nil
}

func oneOf(t *cel.Type, list []*cel.Type) bool {
	for _, want := range list {
		if t.IsExactType(want) {
			return true
		}
	}
	return false
}

func typeNames(list []*cel.Type) string {
	words := make([]string, len(list))
	for i, t := range list {
		words[i] = t.String()
	}
	return strings.Join(words, ", ")
}

// faults converts the compiler's findings. A name that does not exist gets the closest one as hint.
func faults(source string, issues *cel.Issues) (list Errors) {
	seen := map[common.Location]bool{}
	for _, e := range issues.Errors() {
		if seen[e.Location] {
			continue
		}
		seen[e.Location] = true
		message, _, _ := strings.Cut(e.Message, " expecting {") // the parser's list of all tokens
		bad := Error{Line: e.Location.Line(), Column: e.Location.Column()}
		if word := wordAt(source, e.Location); strings.HasPrefix(message, "undeclared reference") && index[word] == nil {
			message = "unknown name " + word
			if bad.Hint = strict.DidYouMean(word, Names()); bad.Hint == "" {
				bad.Hint = "names are " + strings.Join(namesNear(word), ", ")
			}
		}
		bad.Message = fmt.Sprintf("is invalid at line %d, column %d: %s", bad.Line, bad.Column+1, message)
		list = append(list, bad)
	}
	return list
}

// wordAt returns the dotted name at a location, or at the function that is called there.
func wordAt(source string, at common.Location) string {
	lines := strings.Split(source, "\n")
	if at.Line() < 1 || at.Line() > len(lines) {
		return ""
	}
	line := []rune(lines[at.Line()-1])
	column := min(max(at.Column(), 0), len(line))
	word := func(r rune) bool {
		return r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	from, to := column, column
	for from > 0 && word(line[from-1]) {
		from--
	}
	for to < len(line) && word(line[to]) {
		to++
	}
	return strings.Trim(string(line[from:to]), ".")
}

// sizes bounds the values of variables for the cost estimate.
type sizes struct{}

// EstimateSize returns the largest size of any value.
func (sizes) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Min: 0, Max: longest}
}

// EstimateCallCost leaves the cost of functions to the compiler.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
