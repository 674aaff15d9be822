package value

import "unsafe"

// Dict is a dict that keeps the order in which keys were first set.
type Dict struct {
	entries []entry
	index   map[string]int // places of the keys that are a str, in large dicts
}

type entry struct{ key, val Value }

// linearDict is the number of keys up to which a look-up compares them all.
const linearDict = 12

// NewDict returns an empty dict with room for n keys.
func NewDict(n int) *Dict {
	if n == 0 {
		return &Dict{}
	}
	return &Dict{entries: make([]entry, 0, n)}
}

const (
	dictSize  = int(unsafe.Sizeof(Dict{}))
	entrySize = int(unsafe.Sizeof(entry{}))
	indexSize = 64 // of a key in the index, about
)

// needs returns how many bytes one more key would take.
func (d *Dict) needs() (n int) {
	if len(d.entries) == cap(d.entries) {
		n = entrySize * d.room()
	}
	if len(d.entries) >= linearDict {
		n += indexSize
	}
	return n
}

// room is how many keys a dict that is full grows to.
func (d *Dict) room() int { return max(2, 2*len(d.entries)) }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].val, true
	}
	return Value{}, false
}

// Text returns the string value of a key. It returns "" if the key is absent, the value is not a
// string, or d is nil.
func (d *Dict) Text(key string) string {
	if d == nil {
		return ""
	}
	v, _ := d.Get(key)
	return v.Str()
}

// Set sets the value of key. An existing key keeps its position. The key's bytes must not change.
func (d *Dict) Set(key string, v Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].val = v
		return
	}
	d.append(String(key), v)
}

// append adds a key that is not there.
func (d *Dict) append(k, v Value) {
	if len(d.entries) == cap(d.entries) {
		d.entries = append(make([]entry, 0, d.room()), d.entries...)
	}
	d.entries = append(d.entries, entry{k, v})
	switch {
	case d.index != nil:
		if k.kind == KindString {
			d.index[k.str()] = len(d.entries) - 1
		}
	case len(d.entries) > linearDict:
		d.reindex()
	}
}

func (d *Dict) reindex() {
	d.index = make(map[string]int, 2*len(d.entries))
	for i := range d.entries {
		if k := d.entries[i].key; k.kind == KindString {
			d.index[k.str()] = i
		}
	}
}

// Delete removes a key.
func (d *Dict) Delete(key string) {
	i := d.find(key)
	if i < 0 {
		return
	}
	d.entries = append(d.entries[:i], d.entries[i+1:]...)
	if d.index != nil {
		d.reindex()
	}
}

// At returns the i-th key, of any kind, and its value.
func (d *Dict) At(i int) (key, val Value) { return d.entries[i].key, d.entries[i].val }

// Keys returns the keys, of any kind, in order.
func (d *Dict) Keys() []Value {
	out := make([]Value, len(d.entries))
	for i := range d.entries {
		out[i] = d.entries[i].key
	}
	return out
}

// Range calls f for each key that is a str, in order, until it returns false.
func (d *Dict) Range(f func(key string, v Value) bool) {
	for _, e := range d.entries {
		if e.key.kind == KindString && !f(e.key.str(), e.val) {
			return
		}
	}
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if k := d.entries[i].key; k.kind == KindString && k.str() == key {
			return i
		}
	}
	return -1
}

// findAny is find for a key of any kind: 1, 1.0 and True are one key.
func (d *Dict) findAny(k Value) int {
	if k.kind == KindString {
		return d.find(k.str())
	}
	for i := range d.entries {
		if e := d.entries[i].key; e.kind != KindString && meter().Equal(e, k) {
			return i
		}
	}
	return -1
}

// Lookup returns the value of a key of any kind.
func (d *Dict) Lookup(k Value) (Value, bool) {
	if i := d.findAny(k); i >= 0 {
		return d.entries[i].val, true
	}
	return Value{}, false
}

// Store gives a key of any kind a value.
func (d *Dict) Store(k, v Value) {
	if i := d.findAny(k); i >= 0 {
		d.entries[i].val = v
		return
	}
	d.append(k, v)
}

func (d *Dict) equal(o *Dict, m *Meter) bool {
	if d.Len() != o.Len() {
		return false
	}
	for _, e := range d.entries {
		if v, ok := o.Lookup(e.key); !ok || !m.Equal(e.val, v) {
			return false
		}
	}
	return true
}
