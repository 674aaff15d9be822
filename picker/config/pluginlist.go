package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// readPlugins builds the file's plugins.
func (b *builder) readPlugins(n strict.Node) {
	list, _ := n.List()
	for _, e := range list {
		o := e.Object()
		name, named := o.Field("name").Text()
		typeName, ok := o.Need("type").Text()
		params := o.Field("parameters")
		o.Done()
		if !named {
			name = typeName
		}
		p := &instance{name: name, node: e, params: params, broken: true}
		if ok {
			b.build(p, typeName, o.Field("type"))
		}
		if name == "" {
			continue
		}
		if old := b.byName[name]; old != nil {
			e.Problem(firstOnLine(old.node), "two plugins are named %q", name)
			continue
		}
		b.add(p)
	}
}

// build builds the plugin from its type and parameters.
func (b *builder) build(p *instance, typeName string, at strict.Node) {
	typ, ok := b.opts.Table.Find(typeName)
	if !ok {
		hint, known := foreignTypes[typeName]
		if known {
			at.Problem(hint.String(), "plugin type %s of other pickers is not built in", typeName)
			return
		}
		at.Problem(b.nearestType(typeName), "there is no plugin type %q", typeName)
		return
	}
	p.typ = typ
	params := &plugin.Params{Folder: filepath.Dir(b.out.File), Decode: func(into any) error {
		if !p.params.Found() {
			return nil
		}
		return p.params.Decode(into)
	}}
	plugin, err := typ.New(params)
	if err != nil {
		b.complain(p, err)
		return
	}
	p.plugin, p.used, p.broken = plugin, params.Used, false
	for _, d := range plugin.Differs {
		b.note(p.node, "", "plugin %s: %s", p.name, d)
	}
	if params.Unread && p.params.Found() && !p.params.IsNull() {
		b.note(p.params, "", "plugin %s: type %s has no parameters, so these have no effect", p.name, typ.Name)
	}
	if typ.Note != "" {
		b.note(p.node, "", "plugin %s: %s", p.name, typ.Note)
	}
}

// complain reports why a plugin could not be built, at the parameter if the error names one. It
// does not repeat problems that were already reported.
func (b *builder) complain(p *instance, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			b.complain(p, e)
		}
		return
	}
	var bad *plugin.ParamError
	switch {
	case errors.Is(err, strict.ErrReported): // already in the report
	case errors.As(err, &bad):
		at := p.node
		if p.params.Found() {
			at = p.params.At(bad.Field).Within(bad.At.Line, bad.At.Column)
		}
		if !at.HasProblem() {
			at.Problem(bad.Hint, "plugin %s: %v", p.name, err)
		}
	default:
		p.node.Problem("", "plugin %s: %v", p.name, err)
	}
}

// nearestType returns a hint for a type, by its spelling or its role.
func (b *builder) nearestType(name string) string {
	names := b.opts.Table.Names()
	for _, t := range b.opts.Table {
		names = append(names, t.Aliases...)
	}
	if hint := strict.DidYouMean(name, names); hint != "" {
		return hint
	}
	for _, role := range []string{"filter", "scorer", "picker", "handler", "detector", "parser", "producer", "decider", "policy"} {
		if !strings.HasSuffix(name, role) {
			continue
		}
		same := slices.DeleteFunc(b.opts.Table.Names(), func(n string) bool { return !strings.HasSuffix(n, role) })
		if len(same) > 0 {
			return "of that role there are " + strings.Join(same, ", ")
		}
	}
	return ""
}

// article returns a kind with its article.
func article(k plugin.Kind) string {
	if strings.ContainsAny(string(k[:1]), "aeiou") {
		return "an " + string(k)
	}
	return "a " + string(k)
}
