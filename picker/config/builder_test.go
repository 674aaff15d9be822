package config

import (
	"reflect"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// filled returns settings in which every field has a value.
func filled(t *testing.T) *plugin.Producer {
	t.Helper()
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64, reflect.Int32:
			v.SetInt(7)
		case reflect.Uint8:
			v.SetUint(7)
		case reflect.Float64:
			v.SetFloat(7)
		case reflect.String:
			v.SetString("x")
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Func:
			v.Set(reflect.ValueOf(func(*cycle.Cycle, []string, float64) (int64, bool) { return 7, true }))
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		default:
			t.Fatalf("a field has the type %s: give it a value", v.Type())
		}
	}
	var p plugin.Producer
	fill(reflect.ValueOf(&p).Elem())
	return &p
}

// TestEverySettingIsMerged checks that each field of a plugin's settings reaches the configuration, and
// that a plugin without settings takes none away.
func TestEverySettingIsMerged(t *testing.T) {
	b := &builder{}
	p := filled(t)
	b.mergeProducer(p)
	b.mergeProducer(nil)
	b.mergeProducer(&plugin.Producer{})
	got, want := reflect.ValueOf(b.out.Producer), reflect.ValueOf(*p)
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		if got.Field(i).Kind() == reflect.Func {
			if got.Field(i).IsNil() {
				t.Errorf("%s was lost", name)
			}
		} else if !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			t.Errorf("%s = %v, want %v", name, got.Field(i), want.Field(i))
		}
	}
}
