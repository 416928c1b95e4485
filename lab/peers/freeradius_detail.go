// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Accounting is a record that FreeRADIUS was told, by the names of its dictionary, without quotation marks.
type Accounting map[string]string

// ReadDetail reads [FreeRADIUS].Detail. No file is no record yet, and a last record that is not whole yet is left out.
func ReadDetail(path string) (list []Accounting, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	parts := strings.Split(string(text), "\n\n")
	for _, part := range parts[:len(parts)-1] {
		one := Accounting{}
		for line := range strings.Lines(part) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				one[name] = strings.Trim(value, `"`)
			}
		}
		list = append(list, one)
	}
	return list, err
}

// Number is a value of a record; without one it is 0.
func (a Accounting) Number(name string) (n uint64) {
	n, _ = strconv.ParseUint(a[name], 10, 64)
	return n
}

// Octets is a counter of 64 bits, of Input or Output (RFC 2869 sections 5.1 and 5.2).
func (a Accounting) Octets(name string) uint64 {
	return a.Number("Acct-"+name+"-Gigawords")<<32 | a.Number("Acct-"+name+"-Octets")
}
