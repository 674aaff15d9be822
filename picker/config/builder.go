package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// builder converts one document to a Config. It reports problems and continues.
type builder struct {
	opts    Options
	report  *strict.Report
	out     Config
	plugins []*instance
	byName  map[string]*instance
	notes   *strict.Report

	profileAt []strict.Node // positions of the profiles
}

// instance is a plugin from the file, or one that was added.
type instance struct {
	name   string
	typ    plugin.Type
	node   strict.Node // the entry; absent if it was added
	params strict.Node
	used   any // parameters with defaults
	plugin plugin.Plugin
	broken bool // a problem was reported; ignore references to it
	apart  bool // a producer with settings different from the built-in index
	refs   int
}

func newBuilder(file string, report *strict.Report, o Options) *builder {
	if o.Table == nil {
		o.Table = plugins.Builtin()
	}
	b := &builder{opts: o, report: report, byName: map[string]*instance{}, notes: &strict.Report{File: file}}
	b.out.File = file
	b.out.Rules = &picker.Rules{}
	return b
}

// document reads the top level. Plugins are first, because all other parts refer to them.
func (b *builder) document(root strict.Node) {
	doc := root.Object()
	if !doc.Found() {
		return
	}
	if !b.header(doc) {
		return
	}
	b.gates(doc.Field("featureGates"))
	b.readPlugins(doc.Field("plugins"))
	b.bindProducers()
	b.bindAttributes()
	b.bindTopology()
	b.bindFilters()
	b.readMetrics()
	b.readProfiles(doc.Field("schedulingProfiles"))
	b.addScreens()
	b.handler(root)
	flow := doc.Field("flowControl")
	b.readFlow(flow)
	b.readDetector(doc.Field("saturationDetector"), flow)
	b.readData(doc)
	b.readParsers(doc)
	b.readObjectives(doc.Field("objectives"))
	b.readRewrites(doc.Field("modelRewrites"))
	b.readTrust(doc.Field("trust"))
	doc.Done()
	b.idle()
}

// header reads the file's type and reports whether to continue: another type of object has only
// unknown fields.
func (b *builder) header(doc *strict.Object) bool {
	if kind := doc.Field("kind"); kind.IsText() {
		if s, _ := kind.Text(); s == "ConfigMap" {
			kind.Problem("pass the file stored in its data", "this is a ConfigMap, not an %s", kindName)
			return false
		}
	}
	if v, ok := doc.Need("apiVersion").Enum(groupGateway, groupLLMD, groupStable); ok {
		b.out.effective.APIVersion = v
	}
	doc.Need("kind").Enum(kindName)
	b.out.effective.Kind = kindName
	if n := doc.Field("profileHandler"); n.Found() {
		n.Problem("list it under plugins", "the profile handler is a plugin, not a separate section")
	}
	return true
}

// note adds a note about a valid part.
func (b *builder) note(n strict.Node, hint, format string, a ...any) {
	n.Into(b.notes).Problem(hint, format, a...)
}

// gates reads feature gates: a name, name=true, or name=false.
func (b *builder) gates(n strict.Node) {
	b.out.Gates = map[string]bool{}
	list, _ := n.List()
	for _, e := range list {
		s, ok := e.Text()
		if !ok {
			continue
		}
		name, value, set := strings.Cut(s, "=")
		on, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(value)))
		if set && err != nil {
			e.Problem("name, name=true or name=false", "%s: %q is not a feature gate", e.Path(), s)
			continue
		}
		b.out.Gates[name] = on || !set
		if meaning, known := knownGates[name]; !known {
			b.note(e, strict.DidYouMean(name, gateNames()), "feature gate %s is unknown and has no effect", name)
		} else if meaning != "" {
			b.note(e, "", "feature gate %s has no effect: %s", name, meaning)
		}
		b.out.effective.FeatureGates = append(b.out.effective.FeatureGates, s)
	}
}

// idle adds a note for each unreferenced plugin.
func (b *builder) idle() {
	for _, p := range b.plugins {
		playsInProfile := p.plugin.Filter != nil || p.plugin.Scorer != nil || p.plugin.Picker != nil
		if p.refs == 0 && playsInProfile && p.plugin.Producer == nil && !p.broken && p.node.Found() {
			b.note(p.node, "", "plugin %s is in no profile", p.name)
		}
	}
}

// find resolves a reference to a plugin.
func (b *builder) find(n strict.Node) *instance {
	name, ok := n.Text()
	if !ok {
		return nil
	}
	p := b.byName[name]
	if p == nil {
		n.Problem(b.reference(name), "%s: there is no plugin named %q", n.Path(), name)
		return nil
	}
	p.refs++
	if p.broken {
		return nil
	}
	return p
}

// reference returns a hint for a misspelled reference.
func (b *builder) reference(name string) string {
	names := make([]string, 0, len(b.plugins))
	for _, p := range b.plugins {
		if p.typ.Name == name || slices.Contains(p.typ.Aliases, name) {
			return fmt.Sprintf("the plugin of that type is named %q", p.name)
		}
		names = append(names, p.name)
	}
	if hint := strict.DidYouMean(name, names); hint != "" {
		return hint
	}
	if _, ok := b.opts.Table.Find(name); ok {
		return "it is a type: list it under plugins"
	}
	return ""
}

// ensure returns the plugin of a type and adds it if there is none.
func (b *builder) ensure(typeName string) *instance {
	for _, p := range b.plugins {
		if p.typ.Name == typeName {
			p.refs++
			return p
		}
	}
	typ, ok := b.opts.Table.Find(typeName)
	if !ok {
		panic("config: the table lacks " + typeName)
	}
	p := &instance{name: typeName, typ: typ, refs: 1}
	params := &plugin.Params{}
	var err error
	if p.plugin, err = typ.New(params); err != nil {
		panic(fmt.Sprintf("config: %s cannot be built from its defaults: %v", typeName, err))
	}
	p.used = params.Used
	b.add(p)
	return p
}

func (b *builder) add(p *instance) {
	b.plugins = append(b.plugins, p)
	b.byName[p.name] = p
}

// mergeProducers merges the plugins' settings for the index and for sessions, except estimates
// bound to specific scorers or to none.
func (b *builder) mergeProducers() {
	for _, p := range b.plugins {
		if !p.apart {
			b.mergeProducer(p.plugin.Producer)
		}
	}
}

// mergeProducer adds a plugin's settings to the settings of earlier ones.
func (b *builder) mergeProducer(p *plugin.Producer) {
	if p == nil {
		return
	}
	out := &b.out.Producer
	out.Precise = out.Precise || p.Precise
	if p.Events != (endpoint.Events{}) {
		out.Events = p.Events
	}
	out.EventsListen = cmp.Or(p.EventsListen, out.EventsListen)
	out.FixedCapacity = out.FixedCapacity || p.FixedCapacity
	out.BlockTokens = cmp.Or(p.BlockTokens, out.BlockTokens)
	out.MatchBlocks = cmp.Or(p.MatchBlocks, out.MatchBlocks)
	out.BlocksPerEP = cmp.Or(p.BlocksPerEP, out.BlocksPerEP)
	out.Tiers = cmp.Or(p.Tiers, out.Tiers)
	out.SessionTable = cmp.Or(p.SessionTable, out.SessionTable)
	out.TokenHeader = cmp.Or(p.TokenHeader, out.TokenHeader)
	if p.Urgency != nil {
		out.Urgency, out.UrgencyText = p.Urgency, p.UrgencyText
	}
	out.Programs = cmp.Or(p.Programs, out.Programs)
	out.Sessions = append(out.Sessions, p.Sessions...)
	out.Stamps = append(out.Stamps, p.Stamps...)
	out.FlowHeaders = append(out.FlowHeaders, p.FlowHeaders...)
}

// config returns the result. There were no problems.
func (b *builder) config() *Config {
	b.mergeProducers()
	c := b.out
	c.Rules.Sessions, c.Rules.Tiers, c.Rules.Urgency = c.Producer.Sessions, c.Producer.Tiers, c.Producer.Urgency
	if c.Rules.Propagates {
		c.Rules.Urgency = plugins.PropagatePriority
		c.Producer.UrgencyText = "engine priority: that of the request's objective is written into bodies, negative at endpoints labelled as vLLM"
	}
	if c.Flow != nil {
		c.Flow.nameBy(c.Producer.FlowHeaders)
	}
	c.Rules.Answer = plugins.AnswerHeaders(c.Producer.TokenHeader, c.Producer.Stamps)
	for _, p := range b.plugins {
		if p.plugin.Pull != nil {
			c.Rules.Pull = p.plugin.Pull
		}
		if p.plugin.Sandbox != nil {
			c.Sandboxes = append(c.Sandboxes, Sandbox{p.name, p.plugin.Sandbox})
		}
		c.ReportServed = c.ReportServed || p.typ.Name == "header-based-testing-filter" || p.typ.Name == "destination-endpoint-served-verifier"
	}
	c.Notes = b.notes.Problems()
	c.effective.fill(b)
	return &c
}

func cause(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
