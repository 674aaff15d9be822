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

// Values of Kind.
const (
	KindFilter    Kind = "filter"
	KindScorer    Kind = "scorer"
	KindPicker    Kind = "picker"
	KindPolicy    Kind = "policy" // scorer and picker in one: a complete profile
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
	Aliases []string // other accepted names
	Kind    Kind
	Summary string // one line for lists and the manual
	// Note names the replacement for a type without its own function here; "" for all others.
	Note string
	// New builds a plugin. p may be nil: all parameters have defaults, except where the type
	// requires one.
	New func(p *Params) (Plugin, error)
}

// Plugin is an instance of a type with its roles. At least one is set, unless the type has a Note.
type Plugin struct {
	Filter   cycle.Filter
	Scorer   cycle.Scorer
	Picker   cycle.Picker
	Handler  HandlerFunc
	Decider  Decider
	Detector Detector
	Admit    func(*cycle.Cycle) error // refuses a request before it is placed, with a *request.Error; nil: none
	Pull     func(*cycle.Cycle) int32 // names the candidate from which the prompt's blocks are fetched, −1: none; nil: no such rule
	Sizing   *rules.Sizing            // how a detector measures the pool's capacity
	Producer *Producer
	Flow     *FlowPolicy
	File     *FileDiscovery
	Metrics  *EngineMetrics
	Uses     []Use // other plugins that this one refers to
	// Differs lists parameters that work differently than in other pickers, without affecting the
	// choice.
	Differs []string

	// Holdings is a separate producer's view of cached prefixes. Bind rebuilds this plugin for the
	// producer that its parameter names.
	Holdings *Holdings
	Bind     func(*Holdings) Plugin

	// Labels maps the attribute keys that this plugin publishes to endpoint labels with text, and
	// NumberLabels to labels with numbers. Attribute is the key that a plugin reads. BindLabel
	// rebuilds a plugin that reads text for the key's label, and BindNumber one that reads numbers.
	Labels       map[string]string
	NumberLabels map[string]string
	Attribute    *Attribute
	BindLabel    func(label string) Plugin
	BindNumber   func(Number) Plugin

	// Topology are the labels with endpoints' locations, if the plugin names them. BindTopology
	// rebuilds a plugin that compares locations by other labels.
	Topology     *TopologyLabels
	BindTopology func(TopologyLabels) Plugin

	// BindFilters builds the filter of a plugin that applies others.
	BindFilters func(FindFilter) cycle.Filter

	// Gauges are the custom gauges that the plugin reads by name.
	Gauges []string

	// Sandbox is the code in another language that the plugin runs; nil for other plugins.
	Sandbox Sandbox

	// Screens means that Filter is the first filter of every profile; profiles do not name it.
	Screens bool
}

// Holdings is one producer's data about cached prompts, if a configuration has several different
// producers.
type Holdings struct {
	// Fill sets held[k] to the number of prompt tokens cached at c.At(k).
	Fill func(c *cycle.Cycle, held []float64)
	// Chosen records that the request is sent to ep.
	Chosen func(c *cycle.Cycle, ep *endpoint.Endpoint)
}

// FindFilter returns the filter of the plugin that a parameter names, or nil after a problem.
type FindFilter func(field, name string) cycle.Filter

// TopologyLabels are the names of the labels of endpoint.Levels.
type TopologyLabels [len(endpoint.Levels)]string

// Use is a parameter that refers to another plugin.
type Use struct {
	Field string // json name as in the file, dotted
	Name  string // of the plugin
	Kind  Kind   // required kind
}

// Decider decides whether a stage of a request should run elsewhere. Safe for concurrent use. The
// zero Decider is none.
type Decider struct {
	// Split decides about a request that the candidate at index serving would serve.
	Split func(c *cycle.Cycle, serving int32) bool
	// Pair, if not nil, chooses both endpoints together. It returns the cheapest way among the
	// candidates that can serve and help. whole is the candidate that would serve the request
	// alone. It does not allocate.
	Pair func(c *cycle.Cycle, among Among) Way
}

// Among is the candidates of a pair, as indexes into all.
type Among struct {
	Serve []int32
	Help  []int32
	Whole int32
}

// Way is the way to serve a request. If Helps is 0, Serve serves it alone. Otherwise the first of
// Help computes the prompt, and the others are fallbacks. Prices are in seconds, for serving alone
// and for the cheapest pair; +Inf if impossible.
type Way struct {
	Serve        int32
	Help         [3]int32
	Helps        int
	Whole, Split float64
	Predicted    cycle.Prediction // for the pair
}

// HandlerFunc builds a profile handler from the configured profiles, in file order, and the
// deciders that the plugin's Uses name.
type HandlerFunc func(profiles []*cycle.Profile, deciders []Decider) (cycle.ProfileHandler, error)

// Detector returns the saturation of the cycle's candidates: 1 or more means saturated.
type Detector func(c *cycle.Cycle) float64

// Params decodes a plugin's parameters.
type Params struct {
	// Folder is the folder of the configuration file, for parameters that name files.
	Folder string
	// Decode decodes the parameters into a struct with json field names and leaves other fields
	// unchanged. It reports problems itself; the error only stops the build.
	Decode func(into any) error
	// Used is the decoded struct, including defaults.
	Used any
	// Unread means that the type has no parameters and none were read.
	Unread bool
}

// Read decodes into into, which holds the defaults, and stores it as Used. With nil Params it does
// nothing.
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

// Written reports whether the file has the parameter.
func (p *Params) Written(name string) bool {
	if p == nil || p.Decode == nil {
		return false
	}
	all := map[string]Unchecked{}
	if p.Decode(&all) != nil {
		return false
	}
	_, ok := all[name]
	return ok
}

// ParamError is a parameter with an invalid value.
type ParamError struct {
	Field   string // json name, dotted
	Message string
	Hint    string // how to fix it, or ""
	// At is the position of the problem within a text value. The zero value means the whole value.
	At Position
}

// Position is a place in a text: the line from 1, and the column from 0 in characters.
type Position struct{ Line, Column int }

func (e *ParamError) Error() string { return fmt.Sprintf("parameter %s %s", e.Field, e.Message) }

// Require returns a ParamError if ok is false.
func Require(ok bool, field, message string) error {
	if ok {
		return nil
	}
	return &ParamError{Field: field, Message: message}
}

// Replacement tells users of another picker's setting what to use here and what that lacks.
type Replacement struct{ Use, Lost string }

// String formats the replacement as a hint. All hints of this kind contain [LostMark].
func (r Replacement) String() string { return r.Use + "; " + LostMark + r.Lost }

// LostMark precedes what a replacement lacks, in hints.
const LostMark = "lost: "

// Foreign returns a ParamError for a parameter of other pickers that has no function here. If set is
// false it returns nil.
func Foreign(set bool, field string, r Replacement) error {
	if !set {
		return nil
	}
	return &ParamError{Field: field, Message: "is not supported", Hint: r.String()}
}

// Faults joins errors, keeping only the first ParamError per field; nil if there are none.
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

// Fixed is the factory of a type without parameters. Any given parameters are ignored, as in other
// pickers.
func Fixed(p Plugin) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) {
		if params != nil {
			params.Used, params.Unread = &none{}, true
		}
		return p, nil
	}
}

// WithParams is the factory of a type with parameters T. build returns every problem of the
// parameters.
func WithParams[T any](defaults T, build func(T) (Plugin, error)) func(*Params) (Plugin, error) {
	return func(params *Params) (Plugin, error) {
		v := defaults
		unread := params.Read(&v) // unreadable fields keep their default
		p, err := build(v)
		if err = errors.Join(unread, err); err != nil {
			return Plugin{}, err
		}
		return p, nil
	}
}
