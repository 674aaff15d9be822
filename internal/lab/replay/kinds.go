package replay

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// Kind describes the engines of one kind in a Fleet.
type Kind struct {
	Model engine.Model // zero: the Case's
	Speed float64      // of its times, against its model's; 0 means 1
	Role  string       // prefill or decode; "": whole requests
}

// Fleet is a list of engines with a name for reports.
type Fleet struct {
	Name  string
	Kinds []Kind // one for each engine
}

// Engines returns a fleet of n equal engines.
func Engines(n int) Fleet { return Fleet{Name: strconv.Itoa(n), Kinds: make([]Kind, n)} }

// ParseFleet reads groups of engines: "8", or "4+4x0.5" for four engines and
// four of half the speed, or "6x70b+2x8b" for two models.
func ParseFleet(s string) (Fleet, error) {
	f := Fleet{Name: s}
	for _, group := range strings.Split(s, "+") {
		count, what, special := strings.Cut(group, "x")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxEndpoints {
			return f, fmt.Errorf("%w: %q: want a number of engines from 1 to %d, or groups such as 4+4x0.5", ErrCase, s, maxEndpoints)
		}
		var k Kind
		if machine, known := engine.MachineByName(what); known {
			k.Model = machine.Model
		} else if what == RolePrefill || what == RoleDecode {
			k.Role = what
		} else if special {
			if k.Speed, err = strconv.ParseFloat(what, 64); err != nil || !(k.Speed >= .01 && k.Speed <= 100) {
				return f, fmt.Errorf("%w: %q: x%s is neither a speed, from 0.01 to 100, nor a model, prefill or decode", ErrCase, s, what)
			}
		}
		for range n {
			f.Kinds = append(f.Kinds, k)
		}
	}
	return f, nil
}

// Mixed reports whether a kind of the fleet has its own model.
func (f *Fleet) Mixed() bool {
	for _, k := range f.Kinds {
		if k.Model != (engine.Model{}) {
			return true
		}
	}
	return false
}

// Capacity returns how many engines of speed 1 the fleet counts as.
func (f *Fleet) Capacity() float64 {
	sum := 0.0
	for _, k := range f.Kinds {
		setDefault(&k.Speed, 1)
		sum += k.Speed
	}
	return sum
}

// Apply makes c a case of the fleet's engines.
func (f *Fleet) Apply(c *Case) {
	c.Endpoints, c.Models, c.Slow, c.Roles = len(f.Kinds), nil, nil, nil
	for _, k := range f.Kinds {
		setDefault(&k.Speed, 1)
		c.Models, c.Slow = append(c.Models, k.Model), append(c.Slow, 1/k.Speed)
		c.Roles = append(c.Roles, k.Role)
	}
}

// Roles of a Kind.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)
