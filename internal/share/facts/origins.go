package facts

import (
	"cmp"
	"iter"
	"slices"
)

// Origins stores one value per key and origin: each replica's value for an endpoint, or for itself.
// The zero value is empty. Not safe for concurrent use. There may be thirty values for each of ten
// thousand keys, so the values of a key are stored in a slice.
type Origins[T any] struct {
	by map[string][]OriginValue[T] // by key; each sorted by origin
}

// OriginValue is one origin's value.
type OriginValue[T any] struct {
	Origin string
	Value  T
}

func find[T any](row []OriginValue[T], origin string) (int, bool) {
	return slices.BinarySearchFunc(row, origin, func(s OriginValue[T], origin string) int { return cmp.Compare(s.Origin, origin) })
}

// Set stores origin's value for key.
func (o *Origins[T]) Set(key, origin string, v T) {
	row := o.by[key]
	i, ok := find(row, origin)
	if ok {
		row[i].Value = v
		return
	}
	if o.by == nil {
		o.by = map[string][]OriginValue[T]{}
	}
	if len(row) == cap(row) { // grow by a quarter, since rows are long-lived
		row = append(make([]OriginValue[T], 0, len(row)+1+len(row)/4), row...)
	}
	o.by[key] = slices.Insert(row, i, OriginValue[T]{origin, v})
}

// Delete removes origin's value for key.
func (o *Origins[T]) Delete(key, origin string) {
	row := o.by[key]
	i, ok := find(row, origin)
	switch {
	case ok && len(row) == 1:
		delete(o.by, key)
	case ok:
		o.by[key] = slices.Delete(row, i, i+1)
	}
}

// KeysOf returns the keys for which origin has a value.
func (o *Origins[T]) KeysOf(origin string) (keys []string) {
	for key, row := range o.by {
		if _, ok := find(row, origin); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// Drop removes all values of origin and returns their keys.
func (o *Origins[T]) Drop(origin string) (keys []string) {
	keys = o.KeysOf(origin)
	for _, key := range keys {
		o.Delete(key, origin)
	}
	return keys
}

// Get returns origin's value for key, or the zero value.
func (o *Origins[T]) Get(key, origin string) (v T) {
	row := o.by[key]
	if i, ok := find(row, origin); ok {
		v = row[i].Value
	}
	return v
}

// Of returns the values for key, by origin. The slice is valid until the next change.
func (o *Origins[T]) Of(key string) []OriginValue[T] { return o.by[key] }

// Values yields the values for key, by origin.
func (o *Origins[T]) Values(key string) iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range o.by[key] {
			if !yield(o.by[key][i].Value) {
				return
			}
		}
	}
}

// Len returns the number of keys.
func (o *Origins[T]) Len() int { return len(o.by) }
