package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Unit is a unit of Grafana.
type Unit string

// Units.
const (
	Plain   Unit = ""
	Seconds Unit = "s"
	Percent Unit = "percentunit"
	Bytes   Unit = "bytes"
	PerSec  Unit = "reqps"
)

// Query is one expression of a panel. $NS is the label matcher of the namespace.
type Query struct{ Expr, Legend string }

// Panel shows queries over time, or their last values as a table.
type Panel struct {
	Title string
	Help  string // what to look for
	Unit  Unit
	Table bool
	Query []Query
}

// Row is a heading with panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Variable lets the reader choose the value of a label.
type Variable struct {
	Name  string // the label
	From  string // the metric that has it
	Multi bool   // several values, or all
}

// Dashboard is one file.
type Dashboard struct {
	File      string // without extension
	Title     string
	Variables []Variable
	Rows      []Row
}

// object is an object of JSON. Its members are sorted by name.
type object = map[string]any

var source = object{"type": "prometheus", "uid": "${source}"}

// Sizes on Grafana's grid of 24 columns.
const (
	gridWidth   = 24
	panelWidth  = 12
	panelHeight = 8
	tableHeight = 6
)

// JSON returns the dashboard in Grafana's format.
func (d *Dashboard) JSON() ([]byte, error) {
	variables := []object{
		{"name": "source", "label": "data source", "type": "datasource", "query": "prometheus"},
		variable(Variable{Name: "namespace", From: "grapevine_picker_endpoints"}, ""),
	}
	for _, v := range d.Variables {
		variables = append(variables, variable(v, `{namespace="$namespace"}`))
	}
	board := object{
		"title": d.Title, "uid": "grapevine-" + d.File, "schemaVersion": 39, "tags": []string{"grapevine"},
		"time": object{"from": "now-1h", "to": "now"}, "refresh": "30s",
		"templating": object{"list": variables},
		"links":      []object{{"title": "Grapevine", "type": "dashboards", "tags": []string{"grapevine"}, "asDropdown": true, "keepTime": true, "includeVars": true}},
		"panels":     d.panels(),
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(board)
	return b.Bytes(), err
}

func variable(v Variable, matcher string) object {
	o := object{
		"name": v.Name, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
		"query": fmt.Sprintf("label_values(%s%s, %s)", v.From, matcher, v.Name),
	}
	if v.Multi {
		o["multi"], o["includeAll"], o["allValue"], o["current"] = true, true, ".*", object{"text": "All", "value": "$__all"}
	}
	return o
}

func (d *Dashboard) panels() (list []object) {
	y, id := 0, 0
	add := func(o object, x, w, h int) {
		id++
		o["id"], o["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		list = append(list, o)
	}
	for _, r := range d.Rows {
		if r.Title != "" {
			add(object{"type": "row", "title": r.Title}, 0, gridWidth, 1)
			y++
		}
		x := 0
		for _, p := range r.Panels {
			if p.Table {
				add(p.json(), 0, gridWidth, tableHeight)
				y += tableHeight
				continue
			}
			add(p.json(), x, panelWidth, panelHeight)
			if x += panelWidth; x == gridWidth {
				x, y = 0, y+panelHeight
			}
		}
		if x > 0 {
			y += panelHeight
		}
	}
	return list
}

func (p *Panel) json() object {
	kind, targets := "timeseries", []object{}
	for i, q := range p.Query {
		t := object{"refId": string(rune('A' + i)), "expr": q.expr()}
		if p.Table {
			kind, t["format"], t["instant"] = "table", "table", true
		} else if q.Legend != "" {
			t["legendFormat"] = q.Legend
		}
		targets = append(targets, t)
	}
	o := object{"type": kind, "title": p.Title, "datasource": source, "targets": targets, "fieldConfig": object{"defaults": object{"unit": string(p.Unit)}, "overrides": []object{}}}
	if p.Help != "" {
		o["description"] = p.Help
	}
	return o
}

// expr returns the expression with the matcher of the namespace.
func (q *Query) expr() string { return strings.ReplaceAll(q.Expr, "$NS", `namespace="$namespace"`) }
