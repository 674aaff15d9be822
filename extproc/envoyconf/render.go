package envoyconf

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"
	"text/template"
	"time"
)

//go:embed envoy.yaml.tmpl
var source string

// MaxMessageTimeout is the longest timeout that a picker may request for a queued request.
const MaxMessageTimeout = time.Hour

var page = template.Must(template.New("envoy").Funcs(template.FuncMap{
	"q": strconv.Quote, "max": func() string { return fmt.Sprintf("%.0fs", MaxMessageTimeout.Seconds()) },
}).Parse(source))

// Render returns an Envoy bootstrap configuration in YAML with comments. It returns an error that
// wraps ErrParams for an invalid address or mode.
func Render(p Params) ([]byte, error) {
	v, err := p.normalize()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("envoyconf: render: %w", err)
	}
	return out.Bytes(), nil
}
