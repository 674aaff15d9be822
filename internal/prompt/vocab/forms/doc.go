// Package forms brings text into Unicode's normal forms as the engines' tokenizers
// do, whose normaliser is of Unicode 9, and tells quickly of most text that there
// is nothing to do.
//
// It is pure and safe for concurrent use.
package forms
