package plugin

import (
	"errors"
	"fmt"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
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
	KindUsage     Kind = "usage limit policy"
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
	Filter   cycle.Filter
	Scorer   cycle.Scorer
	Picker   cycle.Picker
	Handler  HandlerFunc
	Decider  Decider
	Detector Detector
	Sizing   *rules.Sizing // what a detector takes for the capacity of the pool
	Producer *Producer
	Flow     *FlowPolicy
	File     *FileDiscovery
	Metrics  *EngineMetrics
	Uses     []Use // other plugins that this one refers to
	// Differs says where these parameters do something else than in other
	// pickers, though not what is chosen.
	Differs []string

	// Holdings is what a producer of its own knows of endpoints; Bind makes this
	// plugin anew for the producer that its parameter names.
	Holdings *Holdings
	Bind     func(*Holdings) Plugin
}

// Holdings are what one producer of the configuration knows that endpoints hold,
// where a configuration has several that differ.
type Holdings struct {
	// Fill sets held[k] to the tokens of the prompt that c.At(k) holds.
	Fill func(c *cycle.Cycle, held []float64)
	// Chosen notes that the request goes to ep.
	Chosen func(c *cycle.Cycle, ep *endpoint.Endpoint)
}

// Use is a parameter that names another plugin.
type Use struct {
	Field string // json name as the user wrote it, dotted
	Name  string // of the plugin
	Kind  Kind   // that it must play
}

// Decider tells whether a stage of a request is worth doing elsewhere. It is safe
// for concurrent use. The zero Decider is none.
type Decider struct {
	// Split judges the stage of a request that would be served by the candidate at a
	// position among all.
	Split func(c *cycle.Cycle, serving int32) bool
	// Pair, which may be nil, chooses both endpoints at once: it returns the cheapest
	// way among the candidates that could serve and help, whose whole is the one that
	// would serve the request whole. It needs no memory.
	Pair func(c *cycle.Cycle, among Among) Way
}

// Among are the candidates of a pair, by positions among all.
type Among struct {
	Serve []int32
	Help  []int32
	Whole int32
}

// Way is how a request is served: by Serve alone when Helps is 0, else with the prompt
// computed at the first of Help, the others standing by. Prices are in seconds, of
// serving whole and of the cheapest pair; what there is not costs +Inf.
type Way struct {
	Serve        int32
	Help         [3]int32
	Helps        int
	Whole, Split float64
	Predicted    cycle.Prediction // of the pair
}

// HandlerFunc makes a profile handler of the configured profiles, in the order
// of the file, and of the deciders that the plugin's Uses name.
type HandlerFunc func(profiles []*cycle.Profile, deciders []Decider) (cycle.ProfileHandler, error)

// Detector returns how saturated the cycle's candidates are: 1 and more means
// saturated.
type Detector func(c *cycle.Cycle) float64

// Params decode a plugin's parameters.
type Params struct {
	// Decode fills a struct with json field names from what the user wrote,
	// and leaves what is not mentioned alone. It reports what it does not
	// understand by itself; the error only stops the plugin's building.
	Decode func(into any) error
	// Used is the struct that was filled, defaults included.
	Used any
	// Unread says that the type has no parameters, and none were looked at.
	Unread bool
}

// Read fills into, which holds the defaults, and keeps it as Used. A nil Params
// leaves it alone.
func (p *Params) Read(into any) error {
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

// Require returns a ParamError unless ok.
func Require(ok bool, field, message string) error {
	if ok {
		return nil
	}
	return &ParamError{field, message}
}

// Faults joins all errors, of several ParamErrors of one field the first; nil
// when there are none.
func Faults(errs ...error) error {
	var out []error
	seen := map[string]bool{}
	for _, err := range errs {
		var bad *ParamError
		if errors.As(err, &bad) {
			if seen[bad.Field] {
				continue
			}
			seen[bad.Field] = true
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// none is for types without parameters.
type none struct{}

// Fixed is the factory of a type without parameters. Whatever is written there
// is left alone, as in other pickers.
func Fixed(p Plugin) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) {
		if params != nil {
			params.Used, params.Unread = &none{}, true
		}
		return p, nil
	}
}

// WithParams is the factory of a type with parameters T. build tells everything that
// is wrong with them.
func WithParams[T any](defaults T, build func(T) (Plugin, error)) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) {
		v := defaults
		unread := params.Read(&v) // what could not be read is at its default
		p, err := build(v)
		if err = errors.Join(unread, err); err != nil {
			return Plugin{}, err
		}
		return p, nil
	}
}
