package server

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestPageUsesFieldsOfStatus checks that every field of the status that the page reads exists: a
// missing one shows as "undefined" in a browser.
func TestPageUsesFieldsOfStatus(t *testing.T) {
	page, err := os.ReadFile("../admin/status.html")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\bs\.([a-z_]+(?:\.[a-z_]+)*)\b`).FindAllStringSubmatch(string(page), -1)
	if len(found) < 20 {
		t.Fatalf("the page reads %d fields of the status, want 20 or more", len(found))
	}
	for _, m := range found {
		at := reflect.TypeFor[Status]()
		for name := range strings.SplitSeq(m[1], ".") {
			next, ok := jsonField(at, name)
			if !ok {
				if at.Kind() == reflect.Struct {
					t.Errorf("the page reads s.%s, and %s has no field %s", m[1], at, name)
				}
				break // methods of arrays and strings
			}
			at = next
		}
	}
}

// jsonField returns the type of a struct's field by its JSON name.
func jsonField(of reflect.Type, name string) (reflect.Type, bool) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return nil, false
	}
	for _, f := range reflect.VisibleFields(of) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			for f.Type.Kind() == reflect.Pointer {
				f.Type = f.Type.Elem()
			}
			return f.Type, true
		}
	}
	return nil, false
}
