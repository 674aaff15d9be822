package plugins

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// customs are endpoints with the custom gauge "g"; the last has none.
func customs(values ...float64) *fleet {
	list := make([]one, 0, len(values)+1)
	for _, v := range values {
		list = append(list, one{gauges: &endpoint.Gauges{Values: gauge.Values{Custom: map[string]float64{"g": v}}}})
	}
	return newFleet(append(list, one{})...)
}

func TestAttributeScorer(t *testing.T) {
	const lower = `{"attributeKey":"g","algorithm":{"type":"linear_lower_is_better"`
	const higher = `{"attributeKey":"g","algorithm":{"type":"linear_higher_is_better"`
	for _, c := range []struct {
		params string
		values []float64
		want   []float64 // the last is of the endpoint without a value
	}{
		{lower + `}}`, []float64{10, 20, 40}, []float64{1, 2. / 3, 0, 0}},
		{higher + `}}`, []float64{-10, 20, 50}, []float64{0, .5, 1, 0}},
		{higher + `,"normalization":{"adaptiveRange":{}}}}`, []float64{7, 7}, []float64{1, 1, 0}},
		{lower + `,"normalization":{"fixedRange":{"min":0,"max":100}}}}`, []float64{-5, 25, 200}, []float64{1, .75, 0, 0}},
		{higher + `,"normalization":{"fixedRange":{"min":0,"max":100}}}}`, []float64{7, 7}, []float64{.07, .07, 0}},
		{lower + `}}`, nil, []float64{0}},
	} {
		p := build(t, "endpoint-attribute-scorer", c.params)
		cy := customs(c.values...).cycle(ask(1))
		got := make([]float64, len(c.want))
		p.BindNumber(plugin.GaugeNumber("g")).Scorer.Score(cy, got)
		for k := range got {
			if d := got[k] - c.want[k]; d < -1e-12 || d > 1e-12 {
				t.Errorf("%s, values %v: scores %v, want %v", c.params, c.values, got, c.want)
				break
			}
		}
		p.Scorer.Score(cy, got)
		for k := range got {
			if got[k] != 0 {
				t.Errorf("%s without a producer: scores %v, want zeros", c.params, got)
			}
		}
		cy.Free()
	}
	for _, bad := range []string{
		`{}`, `{"attributeKey":"g"}`, `{"attributeKey":"g","algorithm":{"type":"linear"}}`,
		`{"attributeKey":"g/p","algorithm":{"type":"linear_lower_is_better"}}`,
		lower + `,"normalization":{"fixedRange":{"min":1,"max":1}}}}`,
		lower + `,"normalization":{"fixedRange":{"min":0,"max":1},"adaptiveRange":{}}}}`,
	} {
		if _, err := try("endpoint-attribute-scorer", bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if _, err := try("endpoint-attribute-scorer", `{"attributeKey":"g/p","producer":"","algorithm":{"type":"linear_lower_is_better"}}`); err != nil {
		t.Errorf("a slash next to an empty producer: %v", err)
	}
}

func TestAttributeFilter(t *testing.T) {
	keeps := func(number plugin.Number, operator, more string) string {
		p := build(t, "endpoint-attribute-filter", `{"attribute":"g","algorithm":{"type":"threshold","threshold":{"operator":"`+operator+`","value":20}}`+more+`}`)
		if number != nil {
			p = p.BindNumber(number)
		}
		c := customs(10, 20, 30).cycle(ask(1))
		defer c.Free()
		keep := []bool{true, true, true, true}
		p.Filter.Filter(c, keep)
		out := ""
		for k, kept := range keep {
			if kept {
				out += string(rune('0' + k))
			}
		}
		return out
	}
	g, other := plugin.GaugeNumber("g"), plugin.GaugeNumber("other")
	for _, c := range []struct {
		number               plugin.Number
		operator, more, want string
	}{
		{g, "LessThan", "", "03"},
		{g, "LessThanOrEqual", "", "013"},
		{g, "GreaterThan", "", "23"},
		{g, "GreaterThanOrEqual", "", "123"},
		{g, "Equal", "", "13"},
		{g, "NotEqual", "", "023"},
		{g, "Equal", `,"onMissing":"Fail"`, "1"},
		{other, "Equal", `,"onMissing":"Fail"`, ""},
		{other, "Equal", `,"onMissing":"Fail","fallbackOnEmpty":true`, "0123"},
		{other, "Equal", "", "0123"},
		{nil, "Equal", "", "0123"},
		{nil, "Equal", `,"onMissing":"Fail"`, ""},
	} {
		if got := keeps(c.number, c.operator, c.more); got != c.want {
			t.Errorf("%s%s: kept %q, want %q", c.operator, c.more, got, c.want)
		}
	}
	for _, bad := range []string{
		`{}`, `{"attribute":"g"}`, `{"attribute":"g","algorithm":{"type":"threshold","threshold":{"operator":"Below","value":1}}}`,
		`{"attribute":"g","onMissing":"Maybe","algorithm":{"type":"threshold","threshold":{"operator":"Equal","value":1}}}`,
		`{"attribute":"a/b","algorithm":{"type":"threshold","threshold":{"operator":"Equal","value":1}}}`,
	} {
		if _, err := try("endpoint-attribute-filter", bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// TestLabelNumbers: text that is no finite number counts as missing.
func TestLabelNumbers(t *testing.T) {
	f := newFleet(labelled("n", "2.5"), labelled("n", "-1e3"), labelled("n", "many"), labelled("n", "NaN"), labelled("n", "Inf"), one{})
	c := f.cycle(ask(1))
	defer c.Free()
	read := plugin.LabelNumber("n")
	for k, want := range []float64{2.5, -1000} {
		if v, ok := read(c.At(k)); !ok || v != want {
			t.Errorf("endpoint %d: %g %v, want %g", k, v, ok, want)
		}
	}
	for k := 2; k < 6; k++ {
		if v, ok := read(c.At(k)); ok {
			t.Errorf("endpoint %d: %g, want no number", k, v)
		}
	}
}
