package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ErrReported means that decoding added problems to the Report.
var ErrReported = errors.New("strict: the value has problems")

// Decode decodes the value into a pointer to a struct with json field names, or to a map with
// string keys. Absent and null fields are left unchanged; names must match exactly. Types with
// UnmarshalJSON get the value as JSON. It returns ErrReported if it reported problems, and panics
// for an unsupported type.
func (n Node) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		panic(fmt.Sprintf("strict: decode into %T", into))
	}
	before := n.report.Len()
	n.decode(v.Elem())
	if n.report.Len() > before {
		return ErrReported
	}
	return nil
}

func (n Node) decode(v reflect.Value) {
	if !n.Found() {
		return
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		n.unmarshal(u)
		return
	}
	if _, ok := v.Interface().(time.Duration); ok {
		if d, ok := n.Duration(); ok {
			v.SetInt(int64(d))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		n.decode(fresh.Elem())
		v.Set(fresh)
	case reflect.Struct:
		o := n.Object()
		o.decode(v)
		o.Done()
	case reflect.Map:
		n.decodeMap(v)
	case reflect.Slice:
		n.decodeList(v)
	default:
		n.decodeScalar(v)
	}
}

func (o *Object) decode(v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			o.decode(v.Field(i))
		case name == "":
			o.Field(f.Name).decode(v.Field(i))
		default:
			o.Field(name).decode(v.Field(i))
		}
	}
}

func (n Node) decodeMap(v reflect.Value) {
	o := n.Object()
	out := reflect.MakeMapWithSize(v.Type(), len(o.fields))
	for _, e := range o.Entries() {
		value := reflect.New(v.Type().Elem()).Elem()
		e.Value.decode(value)
		out.SetMapIndex(reflect.ValueOf(e.Name).Convert(v.Type().Key()), value)
	}
	v.Set(out)
}

func (n Node) decodeList(v reflect.Value) {
	list, ok := n.List()
	if !ok {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, e := range list {
		e.decode(out.Index(i))
	}
	v.Set(out)
}

func (n Node) decodeScalar(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s, ok := n.Text(); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if b, ok := n.Bool(); ok {
			v.SetBool(b)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		high := int64(1)<<(v.Type().Bits()-1) - 1
		if i, ok := n.Int(-high-1, high); ok {
			v.SetInt(i)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		high := int64(math.MaxInt64)
		if bits := v.Type().Bits(); bits < 64 {
			high = 1<<bits - 1
		}
		if i, ok := n.Int(0, high); ok {
			v.SetUint(uint64(i))
		}
	case reflect.Float32, reflect.Float64:
		if f, ok := n.Float(-math.MaxFloat64, math.MaxFloat64); ok {
			v.SetFloat(f)
		}
	default:
		panic("strict: decode into " + v.Type().String())
	}
}

func (n Node) unmarshal(u json.Unmarshaler) {
	data, err := n.JSON()
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		n.Problem("", "%s: %v", n.label(), err)
	}
}

// JSON returns the value as JSON, with fields in the order of the file.
func (n Node) JSON() ([]byte, error) {
	var b bytes.Buffer
	if v := n.value(); v == nil {
		b.WriteString("null")
	} else if err := n.write(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (n Node) write(b *bytes.Buffer) error {
	switch v := n.value(); v.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i, e := range n.Object().Entries() {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, e.Name)
			b.WriteByte(':')
			if err := e.Value.write(b); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		list, _ := n.List()
		b.WriteByte('[')
		for i, e := range list {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := e.write(b); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		return writeScalar(b, v)
	}
	return nil
}

func writeScalar(b *bytes.Buffer, v *yaml.Node) error {
	switch v.Tag {
	case "!!null":
		b.WriteString("null")
	case "!!bool", "!!int", "!!float":
		var value any
		if err := v.Decode(&value); err != nil {
			return err
		}
		data, err := json.Marshal(value)
		if err != nil {
			return errors.New(strconv.Quote(v.Value) + " has no form in JSON")
		}
		b.Write(data)
	default:
		writeText(b, v.Value)
	}
	return nil
}

func writeText(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes, and a Buffer does not fail
	b.Truncate(b.Len() - 1)
}

// At returns the value at a dotted path below this one, such as a.b[2].c, or the nearest existing
// value above it.
func (n Node) At(dotted string) Node {
	at := n.Into(&Report{File: n.report.File}) // do not report anything
	for _, name := range strings.FieldsFunc(dotted, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := at.child(name)
		if next.at == nil {
			break
		}
		at = next
	}
	return at.Into(n.report)
}

// child returns the field with that name, or the element with that index.
func (n Node) child(name string) Node {
	if n.IsObject() {
		return n.Object().Field(name)
	}
	if i, err := strconv.Atoi(name); err == nil && n.IsList() {
		if list, _ := n.List(); i >= 0 && i < len(list) {
			return list[i]
		}
	}
	return Node{report: n.report}
}
