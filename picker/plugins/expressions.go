package plugins

import (
	"errors"

	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/expression"
)

type expressionFilterParams struct {
	Expression      string `json:"expression"`
	FallbackOnEmpty bool   `json:"fallbackOnEmpty"`
}

type expressionScorerParams struct {
	Expression string `json:"expression"`
	Normalize  bool   `json:"normalize"`
}

func newExpressionFilter(p expressionFilterParams) (plugin.Plugin, error) {
	f, err := expression.NewFilter(p.Expression, p.FallbackOnEmpty)
	return plugin.Plugin{Filter: f, Gauges: expression.Gauges(p.Expression)}, inExpression(err)
}

func newExpressionScorer(p expressionScorerParams) (plugin.Plugin, error) {
	s, err := expression.NewScorer(p.Expression, p.Normalize)
	return plugin.Plugin{Scorer: s, Gauges: expression.Gauges(p.Expression)}, inExpression(err)
}

// inExpression reports the problems of an expression at its parameter. All are kept, unlike by
// plugin.Faults.
func inExpression(err error) error {
	var list expression.Errors
	if !errors.As(err, &list) {
		return err
	}
	all := make([]error, len(list))
	for i, e := range list {
		all[i] = &plugin.ParamError{Field: "expression", Message: e.Message, Hint: e.Hint, At: plugin.Position{Line: e.Line, Column: e.Column}}
	}
	return errors.Join(all...)
}
