package value

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// tried runs f and returns the failure that it ended with.
func tried(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

// TestDictModel compares a dict with a map and a list of keys.
func TestDictModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, model, order := NewDict(0), map[string]int64{}, []string{}
		for i := range rapid.IntRange(0, 60).Draw(t, "operations") {
			key := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "key"))
			_, known := model[key]
			if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
				d.Delete(key)
				delete(model, key)
				for k := range order {
					if order[k] == key {
						order = append(order[:k], order[k+1:]...)
						break
					}
				}
				continue
			}
			d.Set(key, Int(int64(i)))
			model[key] = int64(i)
			if !known {
				order = append(order, key)
			}
		}
		if d.Len() != len(order) {
			t.Fatalf("%d keys, want %d", d.Len(), len(order))
		}
		for i, want := range order {
			key, val := d.At(i)
			if n, _ := val.Int(); key.Str() != want || n != model[want] {
				t.Fatalf("key %d is %q: %d, want %q: %d", i, key.Str(), n, want, model[want])
			}
		}
	})
}

func TestDictOddKeys(t *testing.T) {
	d := NewDict(0)
	d.Store(Int(1), String("int"))
	d.Store(Bool(true), String("bool")) // 1 and True are one key
	d.Store(String("1"), String("str"))
	d.Store(None(), String("none"))
	if got := FromDict(d).Text(); got != "{1: 'bool', '1': 'str', None: 'none'}" {
		t.Error(got)
	}
	if v, ok := d.Lookup(Float(1)); !ok || v.Str() != "bool" {
		t.Errorf("1.0 finds %s", v.Text())
	}
}

func TestFailures(t *testing.T) {
	for name, f := range map[string]func(){
		"None + str":       func() { Sum([]Value{None(), String("x")}) },
		"order of kinds":   func() { meter().Order(Int(1), String("x")) },
		"iterate an int":   func() { Iterate(Int(1)) },
		"slice step":       func() { Slice(String("abc"), Bound{}, Bound{}, Bound{Set: true}) },
		"division by zero": func() { Binary("//", Int(1), Int(0)) },
		"int in str":       func() { meter().Contains(String("1"), Int(1)) },
	} {
		if err := tried(f); err == nil || errors.Is(err, ErrBounds) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]func(){
		"long string": func() { Repeat("abc", MaxSize) },
		"long list":   func() { Binary("*", List([]Value{None()}), Int(maxRepeat+1)) },
	} {
		if err := tried(f); !errors.Is(err, ErrBounds) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
