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
	fill := func(x any) {
		v := reflect.ValueOf(x).Elem()
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				continue
			}
			next++
			switch f.Kind() {
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
	fill(&row.view.Load)
	fill(&row.view.Reading)
	row.view.Age = 2 * time.Second
	given[2] = true
	fill(&row.pred)
	got := row.explain()
	if got.Predicted == nil {
		t.Fatal("the explanation has no prediction")
	}
	for name, v := range map[string]reflect.Value{"load": reflect.ValueOf(got.Load), "predicted": reflect.ValueOf(*got.Predicted)} {
		for i := range v.NumField() {
			field, value := v.Type().Field(i), v.Field(i)
			var number float64
			if value.CanInt() {
				number = float64(value.Int())
			} else {
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
