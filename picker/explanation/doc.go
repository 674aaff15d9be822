// Package explanation is the JSON representation of one decision. Programs that display
// explanations need no other package of the picker.
package explanation
