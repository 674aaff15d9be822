package expression

import (
	"fmt"
	"math"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// Fact is a value that rules in other languages read: one of the names of expressions, with a key for
// maps.
type Fact struct {
	v   *variable
	Key string // of a map, otherwise empty
}

// ParseFact parses the name of a fact as expressions write it: load.waiting, or
// endpoint.labels["tier"].
func ParseFact(name string) (Fact, error) {
	base, key := name, ""
	isMap := strings.HasSuffix(name, `"]`)
	if isMap {
		base, key, _ = strings.Cut(strings.TrimSuffix(name, `"]`), `["`)
	}
	v := index[base]
	if v == nil {
		return Fact{}, &Error{Message: "there is no fact " + base, Hint: strict.DidYouMean(base, Names())}
	}
	if needsKey := v.texts != nil || v.numbers != nil; needsKey != isMap || isMap && key == "" {
		if needsKey {
			return Fact{}, &Error{Message: fmt.Sprintf("the fact %s needs a name", base), Hint: fmt.Sprintf("write %s[\"NAME\"]", base)}
		}
		return Fact{}, &Error{Message: fmt.Sprintf("the fact %s takes no name", base), Hint: "write " + base}
	}
	return Fact{v, key}, nil
}

// Name returns the name without key.
func (f Fact) Name() string { return f.v.name }

// OfRequest reports whether the fact is the same for all endpoints.
func (f Fact) OfRequest() bool { return strings.HasPrefix(f.v.name, "request.") }

// IsText reports whether the fact is a text, not a number.
func (f Fact) IsText() bool { return f.v.text != nil || f.v.texts != nil }

// Facts reads facts of one decision. The zero value is ready for Reset.
type Facts struct{ vars vars }

// Reset sets the decision. nil ends the use of the old one.
func (r *Facts) Reset(c *cycle.Cycle) { r.vars = vars{c: c} }

// At sets the candidate.
func (r *Facts) At(k int) { r.vars.set(k) }

// Text returns a text, empty if it is absent or longer than 1,024 bytes.
func (r *Facts) Text(f Fact) string {
	if f.v.text != nil {
		return text(f.v.text(&r.vars))
	}
	return text(f.v.texts(&r.vars, f.Key))
}

// Number returns a number, NaN if it is absent.
func (r *Facts) Number(f Fact) float64 {
	if f.v.number != nil {
		return f.v.number(&r.vars)
	}
	value, ok := f.v.numbers(&r.vars, f.Key)
	if !ok {
		return math.NaN()
	}
	return value
}
