package strict

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Object is a value with named fields. Done reports fields that were never requested.
type Object struct {
	Node
	fields []field
	index  map[string]int // field name -> index in fields
	asked  []string
}

type field struct {
	key, value *yaml.Node
}

// Object returns the value's fields. An absent value has none and reports nothing; a value of
// another type is reported once.
func (n Node) Object() *Object {
	o := &Object{Node: n}
	if !n.Found() {
		return o
	}
	if n.value().Kind != yaml.MappingNode {
		n.wrong("an object")
		o.at = nil
		return o
	}
	o.index = make(map[string]int, len(n.value().Content)/2)
	o.take(n.value())
	return o
}

// take adds the fields of v, then the fields of merged objects, unless they are already present.
func (o *Object) take(v *yaml.Node) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(v.Content); i += 2 {
		key, value := v.Content[i], v.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			Node{o.report, key, o.path}.Problem("", "a field's name must be text")
		case o.find(key.Value) == nil:
			o.index[key.Value] = len(o.fields)
			o.fields = append(o.fields, field{key, value})
		}
	}
	for _, m := range merged {
		o.merge(m)
	}
}

func (o *Object) merge(m *yaml.Node) {
	v := Node{o.report, m, o.path}
	switch {
	case v.IsObject():
		o.take(v.value())
	case v.IsList():
		for _, c := range v.value().Content {
			o.merge(c)
		}
	default:
		v.Problem("", "only objects can be merged")
	}
}

func (o *Object) find(name string) *field {
	if i, ok := o.index[name]; ok {
		return &o.fields[i]
	}
	return nil
}

// Field returns the field's value, or an absent value.
func (o *Object) Field(name string) Node {
	o.asked = append(o.asked, name)
	path := name
	if o.path != "" {
		path = o.path + "." + name
	}
	if f := o.find(name); f != nil {
		return Node{o.report, f.value, path}
	}
	return Node{report: o.report, path: path}
}

// Need returns the field's value and reports a missing one.
func (o *Object) Need(name string) Node {
	n := o.Field(name)
	if !n.Found() && o.at != nil {
		at := o.Node
		if n.at != nil {
			at.at = n.at
		}
		at.Problem("", "%s is missing", n.path)
	}
	return n
}

// Entries returns all fields in the order of the file, for objects with arbitrary names, and marks
// them as requested.
func (o *Object) Entries() []Entry {
	out := make([]Entry, len(o.fields))
	for i, f := range o.fields {
		out[i] = Entry{Name: f.key.Value, Key: Node{o.report, f.key, o.path}, Value: o.Field(f.key.Value)}
	}
	return out
}

// Entry is one field of an object with arbitrary names.
type Entry struct {
	Name  string
	Key   Node
	Value Node
}

// Done reports every field that was not requested.
func (o *Object) Done() {
	known := make(map[string]bool, len(o.asked))
	for _, name := range o.asked {
		known[name] = true
	}
	for _, f := range o.fields {
		if known[f.key.Value] {
			continue
		}
		hint := DidYouMean(f.key.Value, o.asked)
		switch {
		case hint != "":
		case len(o.asked) == 0:
			hint = "no fields are known here"
		case len(o.asked) <= 12:
			hint = "known here: " + strings.Join(o.asked, ", ")
		}
		where := ""
		if o.path != "" {
			where = " in " + o.path
		}
		o.report.add(f.key.Line, f.key.Column, fmt.Sprintf("unknown field %s%s", quote(f.key.Value), where), hint)
	}
}
