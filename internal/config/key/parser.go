// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Parser turns a value of the file into a checked one.
type Parser[T any] func(raw any) (T, *Fault)

// KindOf names the type of a value in words of TOML.
func KindOf(raw any) string {
	switch raw.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case int64:
		return "a number"
	case float64:
		return "a fraction"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// Text parses a string and hands it on.
func Text[T any](example string, parse func(string) (T, *Fault)) Parser[T] {
	return func(raw any) (T, *Fault) {
		s, ok := raw.(string)
		if !ok {
			var none T
			return none, Wrong(fmt.Sprintf("write it in quotes, like %q", example), "this is %s where text is wanted", KindOf(raw))
		}
		return parse(s)
	}
}

// Optional takes empty text for the zero value.
func Optional[T any](parse Parser[T]) Parser[T] {
	return func(raw any) (T, *Fault) {
		if raw == "" {
			var none T
			return none, nil
		}
		return parse(raw)
	}
}

// List parses an array, or one value alone as an array of one.
func List[T any](parse Parser[T]) Parser[[]T] {
	return func(raw any) ([]T, *Fault) {
		elements, ok := raw.([]any)
		if !ok {
			value, f := parse(raw)
			return []T{value}, f
		}
		list := make([]T, 0, len(elements))
		for i, element := range elements {
			value, f := parse(element)
			if f != nil {
				f.Element = i + 1
				return nil, f
			}
			list = append(list, value)
		}
		return list, nil
	}
}

// Filled refuses an empty list, with a remedy.
func Filled[T any](remedy string, parse Parser[[]T]) Parser[[]T] {
	return func(raw any) ([]T, *Fault) {
		list, f := parse(raw)
		if f == nil && len(list) == 0 {
			return nil, Wrong(remedy, "this list is empty")
		}
		return list, f
	}
}

// OneOf parses a word out of a few.
func OneOf[T ~string](words ...T) Parser[T] {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", string(w))
	}
	choice := "write " + strings.Join(quoted, " or ")
	return Text(string(words[0]), func(s string) (T, *Fault) {
		for _, w := range words {
			if s == string(w) {
				return w, nil
			}
		}
		return "", Wrong(choice, "%q is not known here", s)
	})
}

// Integer parses a whole number between two bounds, both included.
func Integer[T ~int | ~uint8 | ~uint16](low, high int64) Parser[T] {
	return func(raw any) (T, *Fault) {
		n, ok := raw.(int64)
		if !ok {
			return 0, Wrong(fmt.Sprintf("write a whole number from %d to %d, without quotes", low, high), "this is %s where a number is wanted", KindOf(raw))
		}
		if n < low || n > high {
			return 0, Wrong(fmt.Sprintf("write a number from %d to %d", low, high), "%d is out of range", n)
		}
		return T(n), nil
	}
}

// Count is an integer with no bound but that of its type; the file is not the place to
// know how much memory there is.
func Count(low int64) Parser[int] { return Integer[int](low, math.MaxInt32) }

// Bool parses true and false.
func Bool(raw any) (bool, *Fault) {
	b, ok := raw.(bool)
	if !ok {
		return false, Wrong("write true or false, without quotes", "this is %s where true or false is wanted", KindOf(raw))
	}
	return b, nil
}

// Duration parses a time with its unit between two bounds, both included.
func Duration(low, high time.Duration) Parser[time.Duration] {
	return func(raw any) (time.Duration, *Fault) {
		if n, ok := raw.(int64); ok {
			return 0, Wrong(fmt.Sprintf("write %q if seconds are meant", fmt.Sprintf("%ds", n)), "%d has no unit", n)
		}
		return Text("30s", func(s string) (time.Duration, *Fault) {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, Wrong(`write it with a unit, like "30s" or "500ms"`, "%q is not a length of time", s)
			}
			if d < low || d > high {
				return 0, Wrong(fmt.Sprintf("write a time from %v to %v", low, high), "%v is out of range", d)
			}
			return d, nil
		})(raw)
	}
}
