// Package fields fills records for tests of code that copies them field by field.
//
//	var from server.Options
//	fields.Fill(&from)
//	for _, name := range fields.Unset(convert(from)) {
//		t.Errorf("%s is not set", name)
//	}
//
// A field that is added to a record later is filled too. The test then fails until the copy has it.
package fields
