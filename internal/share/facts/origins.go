package facts

// Origins holds one value per key and origin: what each other replica says of an
// endpoint, or of itself. The zero value is empty. It is not safe for concurrent use.
type Origins[T any] struct {
	by map[string]map[string]T // by key, by origin
}

// Set replaces what origin says of key.
func (o *Origins[T]) Set(key, origin string, v T) {
	if o.by == nil {
		o.by = map[string]map[string]T{}
	}
	if o.by[key] == nil {
		o.by[key] = map[string]T{}
	}
	o.by[key][origin] = v
}

// Delete removes what origin says of key.
func (o *Origins[T]) Delete(key, origin string) {
	if delete(o.by[key], origin); len(o.by[key]) == 0 {
		delete(o.by, key)
	}
}

// Drop removes all that origin says and returns the keys that it spoke of.
func (o *Origins[T]) Drop(origin string) (keys []string) {
	for key, by := range o.by {
		if _, ok := by[origin]; ok {
			keys = append(keys, key)
			o.Delete(key, origin)
		}
	}
	return keys
}

// Of returns what the others say of key, by origin. It must not be changed.
func (o *Origins[T]) Of(key string) map[string]T { return o.by[key] }

// Len returns the number of keys.
func (o *Origins[T]) Len() int { return len(o.by) }
