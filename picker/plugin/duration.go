package plugin

import "time"

// Duration validates an optional duration.
func Duration(field, value string) error {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	return Require(err == nil && d >= 0, field, "must be a duration such as 200ms or 2s")
}
