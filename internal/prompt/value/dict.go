package value

// Dict is a dict that keeps the order in which keys were first set.
type Dict struct {
	entries []entry
	index   map[string]int // by key, for large dicts
}

// entry is one key and its value. A key that is not a str has its Value in
// odd, and a name that no str can have in key.
type entry struct {
	key string
	val Value
	odd *Value
}

// linearDict is the number of keys up to which a look-up compares them all.
const linearDict = 12

// NewDict returns an empty dict with room for n keys.
func NewDict(n int) *Dict { return &Dict{entries: make([]entry, 0, n)} }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].val, true
	}
	return Value{}, false
}

// Set gives key a value; a known key keeps its place. The key's bytes must
// stay unchanged.
func (d *Dict) Set(key string, v Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].val = v
		return
	}
	d.entries = append(d.entries, entry{key: key, val: v})
	switch {
	case d.index != nil:
		d.index[key] = len(d.entries) - 1
	case len(d.entries) > linearDict:
		d.index = make(map[string]int, 2*len(d.entries))
		for i := range d.entries {
			d.index[d.entries[i].key] = i
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
	d.index = nil
}

// At returns the i-th key, of any kind, and its value.
func (d *Dict) At(i int) (key, val Value) { return d.entries[i].keyValue(), d.entries[i].val }

// Keys returns the keys, of any kind, in order.
func (d *Dict) Keys() []Value {
	out := make([]Value, len(d.entries))
	for i := range d.entries {
		out[i] = d.entries[i].keyValue()
	}
	return out
}

// Range calls f for each key that is a str, in order, until it returns false.
func (d *Dict) Range(f func(key string, v Value) bool) {
	for _, e := range d.entries {
		if e.odd == nil && !f(e.key, e.val) {
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
		if d.entries[i].key == key {
			return i
		}
	}
	return -1
}

// keyName returns the name under which any key is kept.
func keyName(k Value) string {
	if k.kind == KindString {
		return k.s
	}
	if n, ok := k.Number(); ok {
		k = Float(n) // 1, 1.0 and True are one key
	}
	return "\x00" + string(k.AppendRepr(nil))
}

// Lookup returns the value of a key of any kind.
func (d *Dict) Lookup(k Value) (Value, bool) { return d.Get(keyName(k)) }

// Store gives a key of any kind a value.
func (d *Dict) Store(k, v Value) {
	name := keyName(k)
	d.Set(name, v)
	if k.kind != KindString {
		if i := d.find(name); d.entries[i].odd == nil {
			d.entries[i].odd = &k
		}
	}
}

func (e *entry) keyValue() Value {
	if e.odd != nil {
		return *e.odd
	}
	return String(e.key)
}

func (d *Dict) equal(o *Dict) bool {
	if d.Len() != o.Len() {
		return false
	}
	for _, e := range d.entries {
		if v, ok := o.Get(e.key); !ok || !Equal(e.val, v) {
			return false
		}
	}
	return true
}
