package fields

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// maxDepth limits nested records. Deeper ones keep their zero value.
const maxDepth = 6

// Fill sets every field of the record that v points to, also unexported fields and fields of nested records,
// to a value other than zero. Numbers, texts and times differ from each other. Maps and slices get one
// element. Interfaces, locks and the named fields, such as "Load.Waiting", stay as they are.
func Fill(v any, except ...string) {
	f := filler{except: except}
	f.fill(reflect.ValueOf(v).Elem(), "", 0)
}

type filler struct {
	next   int64
	except []string
}

func (f *filler) fill(v reflect.Value, name string, depth int) {
	if slices.Contains(f.except, name) || depth > maxDepth {
		return
	}
	f.next++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+f.next, 0)))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, byte(f.next >> 8), byte(f.next)})))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(f.next >> 8), byte(f.next)}), 8000)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8:
		v.SetInt(f.next%100 + 1)
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.next)
	case reflect.Uint8:
		v.SetUint(uint64(f.next%200 + 1))
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.next))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.next))
	case reflect.String:
		v.SetString(fmt.Sprint("text", f.next))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) (results []reflect.Value) {
			for i := range v.Type().NumOut() {
				results = append(results, reflect.Zero(v.Type().Out(i)))
			}
			return results
		}))
	case reflect.Chan:
		if v.Type().ChanDir() == reflect.BothDir {
			v.Set(reflect.MakeChan(v.Type(), 1))
		}
	case reflect.Pointer:
		if depth < maxDepth {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), name, depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), name, depth+1)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), name, depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, name, depth+1)
		f.fill(value, name, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if pkg := v.Type().PkgPath(); pkg == "sync" || pkg == "sync/atomic" {
			return
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			at := v.Field(i)
			f.fill(reflect.NewAt(at.Type(), unsafe.Pointer(at.UnsafeAddr())).Elem(), join(name, field.Name), depth+1)
		}
	}
}

// Unset returns the names of the fields of a record that have their zero value, such as
// "Load.Waiting". It looks into nested records, but not into elements of maps and slices. The named fields
// are left out.
func Unset(v any, except ...string) (names []string) {
	var visit func(v reflect.Value, name string)
	visit = func(v reflect.Value, name string) {
		if slices.ContainsFunc(except, func(e string) bool { return e == name || strings.HasPrefix(name, e+".") }) {
			return
		}
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		switch v.Type() {
		case reflect.TypeFor[time.Time](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.AddrPort]():
		default:
			if v.Kind() == reflect.Struct && v.NumField() > 0 {
				for i := range v.NumField() {
					if v.Type().Field(i).Name == "_" {
						continue
					}
					visit(v.Field(i), join(name, v.Type().Field(i).Name))
				}
				return
			}
		}
		if v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 {
			names = append(names, name)
		}
	}
	visit(reflect.ValueOf(v), "")
	return names
}

func join(name, field string) string { return strings.TrimPrefix(name+"."+field, ".") }

// Walk calls visit for each record of this module that can be reached from the pointer root through
// records, pointers, interfaces and short lists. Nothing may change the records at that time.
func Walk(root any, visit func(record reflect.Value)) {
	w := walker{visit: visit, seen: map[place]bool{}}
	w.walk(reflect.ValueOf(root).Elem())
}

// module is the prefix of the paths of packages whose records Walk visits, and shortList the length of
// lists that it looks into.
const (
	module    = "github.com/grapevine-epp/grapevine/"
	shortList = 8
)

// place identifies a record: its first field may have the same address.
type place struct {
	at unsafe.Pointer
	of reflect.Type
}

type walker struct {
	visit func(reflect.Value)
	seen  map[place]bool
}

func (w *walker) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.walk(v.Elem())
		}
	case reflect.Interface:
		if inner := v.Elem(); inner.Kind() == reflect.Pointer {
			w.walk(inner)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct && v.Type().Elem().Kind() != reflect.Pointer {
			return
		}
		for i := range min(v.Len(), shortList) {
			w.walk(v.Index(i))
		}
	case reflect.Struct:
		if !v.CanAddr() || !strings.HasPrefix(v.Type().PkgPath(), module) {
			return
		}
		at := place{unsafe.Pointer(v.UnsafeAddr()), v.Type()}
		if w.seen[at] {
			return
		}
		w.seen[at] = true
		w.visit(v)
		for i := range v.NumField() {
			w.walk(v.Field(i))
		}
	}
}
