package facts

import (
	"cmp"
	"iter"
	"slices"
)

// Origins holds one value per key and origin: what each other replica says of an
// endpoint, or of itself. The zero value is empty. It is not safe for concurrent use.
// There may be thirty values for each of ten thousand keys, so those of a key lie in a row.
type Origins[T any] struct {
	by map[string][]Said[T] // by key; those of a key by origin
}

// Said is what one origin says.
type Said[T any] struct {
	Origin string
	Value  T
}

func find[T any](row []Said[T], origin string) (int, bool) {
	return slices.BinarySearchFunc(row, origin, func(s Said[T], origin string) int { return cmp.Compare(s.Origin, origin) })
}

// Set replaces what origin says of key.
func (o *Origins[T]) Set(key, origin string, v T) {
	row := o.by[key]
	i, ok := find(row, origin)
	if ok {
		row[i].Value = v
		return
	}
	if o.by == nil {
		o.by = map[string][]Said[T]{}
	}
	if len(row) == cap(row) { // a quarter more, for rows stay
		row = append(make([]Said[T], 0, len(row)+1+len(row)/4), row...)
	}
	o.by[key] = slices.Insert(row, i, Said[T]{origin, v})
}

// Delete removes what origin says of key.
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

// Drop removes all that origin says and returns the keys that it spoke of.
func (o *Origins[T]) Drop(origin string) (keys []string) {
	for key, row := range o.by {
		if _, ok := find(row, origin); ok {
			keys = append(keys, key)
			o.Delete(key, origin)
		}
	}
	return keys
}

// Get returns what origin says of key, the zero value when it says nothing.
func (o *Origins[T]) Get(key, origin string) (v T) {
	row := o.by[key]
	if i, ok := find(row, origin); ok {
		v = row[i].Value
	}
	return v
}

// Of returns what the others say of key, by origin. It is valid until something is set or removed.
func (o *Origins[T]) Of(key string) []Said[T] { return o.by[key] }

// Values yields what the others say of key, in order of their origins.
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
