package expression

import (
	"errors"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// headers, labels and gauges are maps from names to values for expressions. Every header and label
// has a value: the empty string if it is absent. Gauges that are absent have none. The maps cannot be
// iterated: macros are off.
type (
	headers vars
	labels  vars
	gauges  vars
)

// lookup finds the value of a name.
func (h *headers) lookup(name string) string { return text((*vars)(h).header(name)) }
func (l *labels) lookup(name string) string  { return text((*vars)(l).label(name)) }

// Contains implements traits.Container: it reports whether the value is not empty.
func (h *headers) Contains(key ref.Val) ref.Val { return contains(h.lookup, key) }

// Contains implements traits.Container.
func (l *labels) Contains(key ref.Val) ref.Val { return contains(l.lookup, key) }

// Find implements traits.Mapper.
func (h *headers) Find(key ref.Val) (ref.Val, bool) { return find(h.lookup, key) }

// Find implements traits.Mapper.
func (l *labels) Find(key ref.Val) (ref.Val, bool) { return find(l.lookup, key) }

// Get implements traits.Indexer.
func (h *headers) Get(key ref.Val) ref.Val { return get(h.lookup, key) }

// Get implements traits.Indexer.
func (l *labels) Get(key ref.Val) ref.Val { return get(l.lookup, key) }

// Contains implements traits.Container: it reports whether the engine has the gauge.
func (g *gauges) Contains(key ref.Val) ref.Val {
	_, found := g.Find(key)
	return types.Bool(found)
}

// Find implements traits.Mapper.
func (g *gauges) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	value, ok := (*vars)(g).gauge(string(name))
	return types.Double(value), ok
}

// Get implements traits.Indexer.
func (g *gauges) Get(key ref.Val) ref.Val {
	if v, ok := g.Find(key); ok {
		return v
	}
	return types.NewErr("no such gauge")
}

func find(lookup func(string) string, key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	return types.String(lookup(string(name))), true
}

func get(lookup func(string) string, key ref.Val) ref.Val {
	if v, ok := find(lookup, key); ok {
		return v
	}
	return types.NewErr("names are strings")
}

func contains(lookup func(string) string, key ref.Val) ref.Val {
	v, ok := find(lookup, key)
	return types.Bool(ok && v != types.String(""))
}

var errNoList = errors.New("headers, labels and gauges cannot be listed")

// noItems is an iterator without items.
type noItems struct{ ref.Val }

// HasNext implements traits.Iterator.
func (noItems) HasNext() ref.Val { return types.False }

// Next implements traits.Iterator.
func (noItems) Next() ref.Val { return nil }

// The methods below complete traits.Mapper and ref.Val. The type checker leaves no expression that
// reaches them with a result.

// Size implements traits.Sizer.
func (*headers) Size() ref.Val { return types.WrapErr(errNoList) }

// Size implements traits.Sizer.
func (*labels) Size() ref.Val { return types.WrapErr(errNoList) }

// Size implements traits.Sizer.
func (*gauges) Size() ref.Val { return types.WrapErr(errNoList) }

// Iterator implements traits.Iterable.
func (*headers) Iterator() traits.Iterator { return noItems{types.NullValue} }

// Iterator implements traits.Iterable.
func (*labels) Iterator() traits.Iterator { return noItems{types.NullValue} }

// Iterator implements traits.Iterable.
func (*gauges) Iterator() traits.Iterator { return noItems{types.NullValue} }

// ConvertToNative implements ref.Val.
func (*headers) ConvertToNative(reflect.Type) (any, error) { return nil, errNoList }

// ConvertToNative implements ref.Val.
func (*labels) ConvertToNative(reflect.Type) (any, error) { return nil, errNoList }

// ConvertToNative implements ref.Val.
func (*gauges) ConvertToNative(reflect.Type) (any, error) { return nil, errNoList }

// ConvertToType implements ref.Val.
func (*headers) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errNoList) }

// ConvertToType implements ref.Val.
func (*labels) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errNoList) }

// ConvertToType implements ref.Val.
func (*gauges) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errNoList) }

// Equal implements ref.Val.
func (h *headers) Equal(other ref.Val) ref.Val { return types.Bool(other == ref.Val(h)) }

// Equal implements ref.Val.
func (l *labels) Equal(other ref.Val) ref.Val { return types.Bool(other == ref.Val(l)) }

// Equal implements ref.Val.
func (g *gauges) Equal(other ref.Val) ref.Val { return types.Bool(other == ref.Val(g)) }

// Type implements ref.Val.
func (*headers) Type() ref.Type { return types.MapType }

// Type implements ref.Val.
func (*labels) Type() ref.Type { return types.MapType }

// Type implements ref.Val.
func (*gauges) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (h *headers) Value() any { return h }

// Value implements ref.Val.
func (l *labels) Value() any { return l }

// Value implements ref.Val.
func (g *gauges) Value() any { return g }
