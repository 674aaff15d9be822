package docs

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// section returns the lines of a page below "## name", up to the next heading.
func section(page, name string) (string, bool) {
	_, rest, found := strings.Cut(page, "\n## "+name+"\n")
	if !found {
		return "", false
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body, true
}

// fences returns the contents of a page's code blocks in a language.
func fences(page, language string) []string {
	var out []string
	for {
		_, rest, found := strings.Cut(page, "\n```"+language+"\n")
		if !found {
			return out
		}
		body, after, closed := strings.Cut(rest, "\n```\n")
		if !closed {
			return append(out, "a code block is not closed")
		}
		out, page = append(out, body+"\n"), "\n"+after
	}
}

// parameter is one field that a plugin type reads, by its path in the file.
type parameter struct{ path, fallback string }

// noDefault stands where a parameter has no default.
const noDefault = "–"

// parameters returns the fields of a type with their defaults, nil when it
// takes none, and whether it takes any name.
func parameters(typ plugin.Type) (list []parameter, anything bool) {
	p := &plugin.Params{}
	_, _ = typ.New(p) // its dependencies may be missing
	v := reflect.Indirect(reflect.ValueOf(p.Used))
	if v.Kind() == reflect.Map {
		return nil, true
	}
	return fields(v, ""), false
}

func fields(v reflect.Value, prefix string) []parameter {
	var out []parameter
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, hasTag := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && !hasTag {
			out = append(out, fields(v.Field(i), prefix)...)
			continue
		}
		path := prefix + name
		switch inner := f.Type; {
		case inner.Kind() == reflect.Struct:
			out = append(out, fields(v.Field(i), path+".")...)
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct:
			out = append(out, parameter{path, noDefault})
			out = append(out, fields(reflect.Zero(inner.Elem()), path+"[].")...)
		default:
			out = append(out, parameter{path, fallback(v.Field(i), strings.Contains(options, "omitempty") || prefix != "")})
		}
	}
	return out
}

// fallback renders a default; an optional one that is zero is none.
func fallback(v reflect.Value, optional bool) string {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return noDefault
	case reflect.Pointer:
		if v.IsNil() {
			return noDefault
		}
		return fmt.Sprintf("`%v`", v.Elem().Interface())
	}
	if v.IsZero() && (optional || v.Kind() == reflect.String) {
		return noDefault
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// rows reads the parameter table of a page: cells by the parameter's name.
func rows(table string) map[string][]string {
	out := map[string][]string{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.SplitN(strings.Trim(line, "|"), "|", 3)
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out[strings.Trim(cells[0], "`")] = cells
	}
	return out
}

// withDefaults returns the page with the defaults in its table replaced.
func withDefaults(page string, list []parameter) string {
	for _, p := range list {
		head := "\n| `" + p.path + "` | "
		before, rest, found := strings.Cut(page, head)
		if !found {
			continue
		}
		_, after, _ := strings.Cut(rest, " | ")
		page = before + head + p.fallback + " | " + after
	}
	return page
}

// index renders docs/plugins/README.md.
func index(table plugin.Table) string {
	var b strings.Builder
	b.WriteString("# Plugins\n\n")
	b.WriteString("The plugin types that an `EndpointPickerConfig` can name, in the order in which a request meets them. How the file is made up: [configuration](../configuration.md);\n")
	b.WriteString("coming from another picker: [migration](../migrate.md).\n")
	kind := plugin.Kind("")
	for _, typ := range table {
		if typ.Kind != kind {
			kind = typ.Kind
			fmt.Fprintf(&b, "\n## %s\n\n| type | what it does |\n|---|---|\n", title(kind))
		}
		fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", typ.Name, typ.Name, brief(typ))
	}
	return b.String()
}

func brief(typ plugin.Type) string {
	if typ.Note != "" {
		return "Built in: " + typ.Note + "."
	}
	return typ.Summary
}

func title(k plugin.Kind) string {
	s := string(k)
	if stem, found := strings.CutSuffix(s, "policy"); found {
		s = stem + "policies"
	} else if k != plugin.KindDiscovery {
		s += "s"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
