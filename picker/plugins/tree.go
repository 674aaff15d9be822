package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// treeParams are a filter, and the filters that follow it by its result.
type treeParams struct {
	Current                *treeEntry `json:"current,omitempty"`
	NextOnSuccess          *treeEntry `json:"nextOnSuccess,omitempty"`
	NextOnFailure          *treeEntry `json:"nextOnFailure,omitempty"`
	NextOnSuccessOrFailure *treeEntry `json:"nextOnSuccessOrFailure,omitempty"`
}

// treeEntry is a filter by its name, or a tree. Exactly one of them is set.
type treeEntry struct {
	PluginRef    string      `json:"pluginRef,omitempty"`
	DecisionTree *treeParams `json:"decisionTree,omitempty"`
}

// tree applies a filter, and then another one by its result: to the candidates that it kept, or to all
// if it kept none. A nil filter ends the tree.
type tree struct{ current, success, failure cycle.Filter }

func newTree(p treeParams) (plugin.Plugin, error) {
	return plugin.Plugin{BindFilters: func(find plugin.FindFilter) cycle.Filter { return p.build("", find) }}, p.check("")
}

// check returns the problems of a tree whose parameters begin with a prefix.
func (p *treeParams) check(prefix string) error {
	return plugin.Faults(
		plugin.Require(p.Current != nil, prefix+"current", "is required"), p.Current.check(prefix+"current"),
		p.NextOnSuccess.check(prefix+"nextOnSuccess"), p.NextOnFailure.check(prefix+"nextOnFailure"),
		p.NextOnSuccessOrFailure.check(prefix+"nextOnSuccessOrFailure"))
}

func (e *treeEntry) check(at string) error {
	switch {
	case e == nil:
		return nil
	case (e.PluginRef == "") == (e.DecisionTree == nil):
		return &plugin.ParamError{Field: at, Message: "must have either pluginRef or decisionTree"}
	case e.DecisionTree != nil:
		return e.DecisionTree.check(at + ".decisionTree.")
	}
	return nil
}

// build returns the filter of a tree, nil if a part is missing.
func (p *treeParams) build(prefix string, find plugin.FindFilter) cycle.Filter {
	t := tree{
		current: p.Current.build(prefix+"current", find), success: p.NextOnSuccess.build(prefix+"nextOnSuccess", find),
		failure: p.NextOnFailure.build(prefix+"nextOnFailure", find),
	}
	either := p.NextOnSuccessOrFailure.build(prefix+"nextOnSuccessOrFailure", find)
	if t.success == nil {
		t.success = either
	}
	if t.failure == nil {
		t.failure = either
	}
	if t.current == nil {
		return nil
	}
	return t
}

func (e *treeEntry) build(at string, find plugin.FindFilter) cycle.Filter {
	switch {
	case e == nil:
		return nil
	case e.DecisionTree != nil:
		return e.DecisionTree.build(at+".decisionTree.", find)
	default:
		return find(at+".pluginRef", e.PluginRef)
	}
}

// Filter implements cycle.Filter.
func (t tree) Filter(c *cycle.Cycle, keep []bool) {
	kept := slices.Clone(keep)
	c.FilterAmong(t.current, kept)
	next := t.failure
	if slices.Contains(kept, true) {
		next = t.success
	} else if t.failure != nil {
		copy(kept, keep)
	}
	if next != nil {
		c.FilterAmong(next, kept)
	}
	copy(keep, kept)
}
