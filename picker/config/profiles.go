package config

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// profile is a scheduling profile being built.
type profile struct {
	*cycle.Profile
	picker string // name of its picker plugin
	refs   []effectiveRef
}

func (b *builder) readProfiles(n strict.Node) {
	list, _ := n.List()
	lines := map[string]strict.Node{}
	for _, e := range list {
		o := e.Object()
		name, ok := o.Need("name").Text()
		if old, twice := lines[name]; ok && twice {
			e.Problem(firstOnLine(old), "two profiles are named %q", name)
		}
		lines[name] = e
		b.profileAt = append(b.profileAt, e)
		p := &profile{Profile: &cycle.Profile{Name: name}}
		refs, _ := o.Field("plugins").List()
		for _, r := range refs {
			b.readRef(p, r)
		}
		o.Done()
		b.close(p)
	}
	if len(list) == 0 {
		b.implicitProfile()
	}
}

// readRef adds one plugin to a profile.
func (b *builder) readRef(p *profile, n strict.Node) {
	o := n.Object()
	ref := o.Need("pluginRef")
	weight := o.Field("weight")
	o.Done()
	w, weighted := weight.Float(0, math.MaxFloat64)
	if !weighted {
		w = 1
	}
	in := b.find(ref)
	if in == nil {
		return
	}
	if slices.ContainsFunc(p.refs, func(r effectiveRef) bool { return r.PluginRef == in.name }) {
		b.note(ref, "", "%s is listed more than once in profile %s, and counts each time", in.name, p.Name)
	}
	if weighted && in.plugin.Scorer == nil {
		b.note(weight, "", "the weight of %s has no effect: it is not a scorer", in.name)
	}
	switch {
	case in.plugin.Screens || in.plugin.Filter == nil && in.plugin.Scorer == nil && in.plugin.Picker == nil:
		b.idleRef(in, ref)
	case in.plugin.Picker != nil && p.picker != "":
		ref.Problem("a profile has one picker", "profile %s has two pickers, %s and %s", p.Name, p.picker, in.name)
	default:
		b.join(p, in, w)
	}
}

// idleRef handles a reference to a plugin that has no role in profiles.
func (b *builder) idleRef(in *instance, ref strict.Node) {
	if in.typ.Kind == plugin.KindHandler {
		b.note(ref, "handlers are listed under plugins only", "%s is a profile handler and cannot be listed in a profile", in.name)
		return
	}
	if in.typ.Kind == plugin.KindFilter {
		return // applies to every profile anyway
	}
	b.note(ref, "", "%s, %s, cannot be listed in a profile", in.name, article(in.typ.Kind))
}

// join adds a plugin to the profile in its roles.
func (b *builder) join(p *profile, in *instance, weight float64) {
	ref := effectiveRef{PluginRef: in.name}
	if in.plugin.Filter != nil {
		p.Filters = append(p.Filters, cycle.ProfileFilter{Name: in.name, Filter: in.plugin.Filter})
	}
	if in.plugin.Scorer != nil {
		p.Scorers = append(p.Scorers, cycle.ProfileScorer{Name: in.name, Weight: weight, Scorer: in.plugin.Scorer})
		ref.Weight = &weight
	}
	if in.plugin.Picker != nil {
		p.Picker, p.picker = in.plugin.Picker, in.name
	}
	p.refs = append(p.refs, ref)
}

// close adds the missing parts of a profile.
func (b *builder) close(p *profile) {
	if p.Picker == nil {
		b.join(p, b.listedPicker(), 1)
	}
	b.out.Profiles = append(b.out.Profiles, p.Profile)
	b.out.effective.Profiles = append(b.out.effective.Profiles, effectiveProfile{p.Name, p.refs})
}

// listedPicker is the picker for profiles without one: a listed one, as in other pickers, or the
// default.
func (b *builder) listedPicker() *instance {
	for _, in := range b.plugins {
		if in.typ.Kind == plugin.KindPicker && !in.broken {
			in.refs++
			return in
		}
	}
	return b.ensure(defaultPicker)
}

// implicitProfile builds the profile of a file without one: all suitable plugins, or the default
// policy if there is no scorer.
func (b *builder) implicitProfile() {
	p := &profile{Profile: &cycle.Profile{Name: defaultProfile}}
	b.profileAt = append(b.profileAt, strict.Node{})
	for _, in := range slices.Clone(b.plugins) {
		if in.broken || in.plugin.Screens || in.typ.Kind == plugin.KindDetector || in.plugin.Picker != nil && p.picker != "" {
			continue
		}
		if in.plugin.Filter != nil || in.plugin.Scorer != nil || in.plugin.Picker != nil {
			in.refs++
			b.join(p, in, 1)
		}
	}
	if len(p.Scorers) == 0 {
		b.join(p, b.ensure(defaultScorer), 1)
	}
	b.close(p)
}

// handler finds the profile handler or adds the one for a single profile.
func (b *builder) handler(root strict.Node) {
	var found *instance
	unknown := false // a plugin of unknown type, which may be the handler
	for _, in := range b.plugins {
		unknown = unknown || in.typ.Name == ""
		if in.typ.Kind != plugin.KindHandler {
			continue
		}
		if found != nil {
			in.node.Problem(firstOnLine(found.node), "two profile handlers, %s and %s", found.name, in.name)
			return
		}
		found = in
		in.refs++
	}
	switch {
	case found == nil && unknown:
		return
	case found == nil && len(b.out.Profiles) > 1:
		root.At("schedulingProfiles").Problem("list a profile handler under plugins", "%d profiles, but no profile handler to choose one", len(b.out.Profiles))
		return
	case found == nil:
		found = b.ensure(defaultHandler)
	case found.broken || found.plugin.Handler == nil:
		return
	}
	deciders, ok := b.deciders(found)
	if !ok {
		return
	}
	h, err := found.plugin.Handler(b.out.Profiles, deciders)
	if err != nil {
		at := found.node
		if !at.Found() {
			at = root
		}
		at.Problem("", "profile handler %s: %v", found.name, err)
		return
	}
	b.out.Rules.Handler = h
	b.unrun(found.name, h)
}

// deciders resolves a profile handler's deciders.
func (b *builder) deciders(handler *instance) (list []plugin.Decider, ok bool) {
	ok = true
	for _, use := range handler.plugin.Uses {
		at := handler.params.At(use.Field)
		in := b.find(at)
		switch {
		case in == nil:
			ok = false
		case in.plugin.Decider.Split == nil:
			at.Problem("", "%s is %s, not %s", in.name, article(in.typ.Kind), article(use.Kind))
			ok = false
		default:
			list = append(list, in.plugin.Decider)
		}
	}
	return list, ok
}

// unrun adds a note for profiles that the handler never runs.
func (b *builder) unrun(name string, h cycle.ProfileHandler) {
	some, ok := h.(interface{ Profiles() []*cycle.Profile })
	if !ok {
		return
	}
	run := some.Profiles()
	for i, p := range b.out.Profiles {
		if !slices.Contains(run, p) {
			b.note(b.profileAt[i], "name a decider for it", "profile %s is never run by %s", p.Name, name)
		}
	}
}

// addScreens puts the filters of screeners in front of every profile's filters.
func (b *builder) addScreens() {
	var screens []cycle.ProfileFilter
	for _, in := range b.plugins {
		if in.plugin.Screens {
			in.refs++
			screens = append(screens, cycle.ProfileFilter{Name: in.name, Filter: in.plugin.Filter})
		}
	}
	if len(screens) == 0 {
		return
	}
	for _, p := range b.out.Profiles {
		p.Filters = append(slices.Clone(screens), p.Filters...)
	}
}
