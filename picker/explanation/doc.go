// Package explanation is the JSON representation of one decision. Programs that display
// explanations need nothing else of the picker.
package explanation
