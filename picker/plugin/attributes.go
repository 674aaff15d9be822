package plugin

import "fmt"

// Attribute names the value of an endpoint that a plugin reads: a key of a label-producer.
type Attribute struct{ Key, Producer string }

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
		Require(p.ValueType == "" || p.ValueType == "string" || p.ValueType == "number", "valueType", "must be string"),
		Foreign(p.ValueType == "number", "valueType", Replacement{
			Use:  "use valueType: string with endpoint-attribute-weight-scorer",
			Lost: "endpoint-attribute-scorer and endpoint-attribute-filter on numbers in labels",
		}),
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
	return Plugin{Labels: of}, Faults(errs...)
}
