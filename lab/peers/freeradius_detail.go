// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Accounting is a record that FreeRADIUS was told, by the names of its dictionary, without quotation marks. Values
// of one name stand behind each other, with a comma and a space between.
type Accounting map[string]string

// ReadDetail reads [FreeRADIUS].Detail. No file is no record yet, and a last record that is not whole yet is left out.
func ReadDetail(path string) (list []Accounting, err error) {
	err = EachDetail(path, func(a Accounting) { list = append(list, a) })
	return list, err
}

// EachDetail calls f for each record of [ReadDetail], of which it keeps none.
func EachDetail(path string, f func(Accounting)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	one := Accounting{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case line == "\n":
			f(one)
			one = Accounting{}
		default:
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				value = strings.Trim(value, `"`)
				if before, again := one[name]; again {
					value = before + ", " + value
				}
				one[name] = value
			}
		}
	}
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
