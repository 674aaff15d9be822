package request

import "maps"

// Names defines the meaning of names in requests. It is immutable.
type Names struct {
	Objectives map[string]int     // priority by objective name; unknown names have 0
	Rewrites   map[string]Rewrite // by the client's model name; AnyModel: all others
}

// AnyModel is the key of the Rewrite for models without their own.
const AnyModel = ""

// Over returns the union of both; n takes precedence over under.
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

// Target returns the model that replaces model, "" for no replacement. random must be uniform.
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

// Rewrite replaces a model name by one of several, chosen by weight.
type Rewrite []WeightedModel

// WeightedModel is one target of a Rewrite.
type WeightedModel struct {
	Model  string
	Weight int // values below 1 are never chosen
}

// draw chooses a target; "" if there is none. random must be uniform.
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
