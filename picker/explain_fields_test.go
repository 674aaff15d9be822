package picker

import (
	"reflect"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestExplanationHasEveryGauge fills every number of a candidate's load, gauges and prediction. Each
// field of the explanation must then have the value of a field of the candidate.
func TestExplanationHasEveryGauge(t *testing.T) {
	row := recordRow{held: 3, view: cycle.View{Endpoint: &endpoint.Endpoint{}}}
	next, given := 1000., map[float64]bool{}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				continue
			}
			next++
			switch f.Kind() {
			case reflect.Struct:
				fill(f)
				continue
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]float64{"custom": next}))
			case reflect.Int, reflect.Int64, reflect.Int32:
				f.SetInt(int64(next))
			case reflect.Float64:
				f.SetFloat(next)
			case reflect.Bool:
				f.SetBool(true)
				continue
			default:
				continue
			}
			given[next] = true
		}
	}
	fill(reflect.ValueOf(&row.view.Load).Elem())
	fill(reflect.ValueOf(&row.view.Reading).Elem())
	row.view.Age = 2 * time.Second
	given[2] = true
	fill(reflect.ValueOf(&row.pred).Elem())
	got := row.explain()
	if got.Predicted == nil {
		t.Fatal("the explanation has no prediction")
	}
	for name, v := range map[string]reflect.Value{
		"load": reflect.ValueOf(got.Load), "gauges": reflect.ValueOf(got.Load.Values), "predicted": reflect.ValueOf(*got.Predicted),
	} {
		for i := range v.NumField() {
			field, value := v.Type().Field(i), v.Field(i)
			var number float64
			switch {
			case value.CanInt():
				number = float64(value.Int())
			case value.Kind() == reflect.Struct:
				continue // a row of its own
			case value.Kind() == reflect.Map:
				if custom := value.MapIndex(reflect.ValueOf("custom")); custom.IsValid() {
					number = custom.Float()
				}
			default:
				number = value.Float()
			}
			const milliseconds = 1000
			sum := name == "predicted" && field.Name == "TTFT"
			if number == 0 || !sum && !given[number] && !given[number/milliseconds] {
				t.Errorf("%s.%s = %v, want the value of a field of the candidate", name, field.Name, number)
			}
		}
	}
}
