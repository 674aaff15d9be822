package plugin

import (
	"fmt"
	"math"
	"strconv"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// Attribute names the value of an endpoint that a plugin reads: a key of a label-producer or, for
// numbers, of the customMetrics of a core-metrics-extractor. Producer is "" for any producer.
type Attribute struct{ Key, Producer string }

// Number reads a number of an endpoint. It returns false if the endpoint has none. It does not
// allocate and is safe for concurrent use.
type Number func(*cycle.View) (float64, bool)

// GaugeNumber returns the Number of a custom gauge.
func GaugeNumber(key string) Number {
	return func(v *cycle.View) (float64, bool) {
		value, ok := v.Custom[key]
		return value, ok
	}
}

// LabelNumber returns the Number of a label. Text that is no finite number counts as missing.
func LabelNumber(label string) Number {
	return func(v *cycle.View) (float64, bool) {
		text, ok := v.Label(label)
		if !ok {
			return 0, false
		}
		value, err := strconv.ParseFloat(text, 64)
		return value, err == nil && !math.IsNaN(value) && !math.IsInf(value, 0)
	}
}

type labelProducerParams struct {
	Labels       []labelAttribute `json:"labels,omitempty"`
	Label        string           `json:"label,omitempty"` // the older form has one label
	AttributeKey string           `json:"attributeKey,omitempty"`
	ValueType    string           `json:"valueType,omitempty"`
}

type labelAttribute struct {
	Label        string `json:"label"`
	AttributeKey string `json:"attributeKey"`
}

// newLabelProducer maps attribute keys to the endpoint labels with their values.
func newLabelProducer(p labelProducerParams) (Plugin, error) {
	errs := []error{
		Require(p.ValueType == "" || p.ValueType == "string" || p.ValueType == "number", "valueType", "must be string or number"),
		Require(len(p.Labels) == 0 || p.Label == "" && p.AttributeKey == "", "label", "and labels cannot be used together"),
		Require(len(p.Labels) > 0 || p.Label != "", "labels", "must name at least one label"),
		Require(p.Label == "" || p.AttributeKey != "", "attributeKey", "is required"),
	}
	of := map[string]string{}
	if p.Label != "" {
		of[p.AttributeKey] = p.Label
	}
	for i, l := range p.Labels {
		at := fmt.Sprintf("labels[%d]", i)
		_, twice := of[l.AttributeKey]
		errs = append(errs,
			Require(l.Label != "", at+".label", "is required"),
			Require(l.AttributeKey != "", at+".attributeKey", "is required"),
			Require(!twice, at+".attributeKey", "is used twice"))
		of[l.AttributeKey] = l.Label
	}
	if p.ValueType == "number" {
		return Plugin{NumberLabels: of}, Faults(errs...)
	}
	return Plugin{Labels: of}, Faults(errs...)
}
