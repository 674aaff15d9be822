package plugins

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/picker"
)

// Kind is the main role of a plugin type.
type Kind string

// Kinds.
const (
	KindFilter    Kind = "filter"
	KindScorer    Kind = "scorer"
	KindPicker    Kind = "picker"
	KindPolicy    Kind = "policy" // scorer and picker in one: a profile by itself
	KindHandler   Kind = "profile handler"
	KindDecider   Kind = "decider"
	KindProducer  Kind = "producer"
	KindDetector  Kind = "saturation detector"
	KindFairness  Kind = "fairness policy"
	KindOrdering  Kind = "ordering policy"
	KindParser    Kind = "parser"
	KindSource    Kind = "data source"
	KindDiscovery Kind = "discovery"
)

// Type is one row of the table.
type Type struct {
	Name    string
	Aliases []string // other spellings in use
	Kind    Kind
	Summary string // one line for lists and manuals
	// Note says what a type that has nothing to do here leaves the work to;
	// "" for all others.
	Note string
	// New builds a plugin. p may be nil: all parameters have defaults unless
	// the type says that one is needed.
	New func(p *Params) (Plugin, error)
}

// Plugin is what a type makes: the roles that it plays. At least one is set,
// unless the type has a Note.
type Plugin struct {
	Filter   picker.Filter
	Scorer   picker.Scorer
	Picker   picker.Picker
	Handler  HandlerFunc
	Decider  Decider
	Detector Detector
	Producer *Producer
	Flow     *FlowPolicy
	File     *FileDiscovery
	Metrics  *EngineMetrics
	Uses     []Use // other plugins that this one refers to
}

// Use is a parameter that names another plugin.
type Use struct {
	Field string // json name as the user wrote it, dotted
	Name  string // of the plugin
	Kind  Kind   // that it must play
}

// HandlerFunc makes a profile handler of the configured profiles, in the order
// of the file, and of the deciders that the plugin's Uses name.
type HandlerFunc func(profiles []*picker.Profile, deciders []Decider) (picker.ProfileHandler, error)

// Detector returns how saturated the cycle's candidates are: 1 and more means
// saturated.
type Detector func(c *picker.Cycle) float64

// Params decode a plugin's parameters.
type Params struct {
	// Decode fills a struct with json field names from what the user wrote,
	// and leaves what is not mentioned alone. It reports what it does not
	// understand by itself; the error only stops the plugin's building.
	Decode func(into any) error
	// Used is the struct that was filled, defaults included.
	Used any
}

// read fills into, which holds the defaults.
func (p *Params) read(into any) error {
	if p == nil {
		return nil
	}
	p.Used = into
	if p.Decode == nil {
		return nil
	}
	return p.Decode(into)
}

// ParamError is a parameter with an impossible value.
type ParamError struct {
	Field   string // json name, dotted
	Message string
}

func (e *ParamError) Error() string { return fmt.Sprintf("parameter %s %s", e.Field, e.Message) }

// must returns a ParamError unless ok.
func must(ok bool, field, message string) error {
	if ok {
		return nil
	}
	return &ParamError{field, message}
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// none is for types without parameters.
type none struct{}

// fixed is the factory of a type without parameters.
func fixed(p Plugin) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) { return p, params.read(&none{}) }
}

// with is the factory of a type with parameters T: check may be nil.
func with[T any](defaults T, build func(T) (Plugin, error)) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) {
		v := defaults
		if err := params.read(&v); err != nil {
			return Plugin{}, err
		}
		return build(v)
	}
}
