package request

import "maps"

// Names say what the names mean that requests carry. They are immutable.
type Names struct {
	Objectives map[string]int     // priority by objective name; unknown ones have 0
	Rewrites   map[string]Rewrite // by model name as the client wrote it; AnyModel: those that have none of their own
}

// AnyModel is the key of the Rewrite for models that have none of their own.
const AnyModel = ""

// Over returns names in which n's meanings hold, and under's where n has none.
func (n Names) Over(under Names) Names {
	return Names{Objectives: over(n.Objectives, under.Objectives), Rewrites: over(n.Rewrites, under.Rewrites)}
}

func over[V any](upper, lower map[string]V) map[string]V {
	switch {
	case len(lower) == 0:
		return upper
	case len(upper) == 0:
		return lower
	}
	out := maps.Clone(lower)
	maps.Copy(out, upper)
	return out
}

// Target returns the model that a request for model is sent to; random is
// uniform over all numbers. "": the one that it names.
func (n Names) Target(model string, random uint64) string {
	if len(n.Rewrites) == 0 {
		return ""
	}
	w, ok := n.Rewrites[model]
	if !ok {
		w = n.Rewrites[AnyModel]
	}
	return w.draw(random)
}

// Rewrite replaces a model name by one of several, drawn by weight.
type Rewrite []WeightedModel

// WeightedModel is one target of a Rewrite.
type WeightedModel struct {
	Model  string
	Weight int // those below 1 are never drawn
}

// draw picks a target; random is uniform over all numbers. "": there is none.
func (w Rewrite) draw(random uint64) string {
	total := 0
	for _, m := range w {
		total += max(m.Weight, 0)
	}
	if total == 0 {
		return ""
	}
	at := int(random % uint64(total))
	for _, m := range w {
		if at -= max(m.Weight, 0); at < 0 {
			return m.Model
		}
	}
	return ""
}
