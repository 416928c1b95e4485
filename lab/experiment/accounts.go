// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
)

// counted are octets of IP packets, from terminals and to them.
type counted struct{ up, down uint64 }

func (c counted) plus(d counted) counted { return counted{c.up + d.up, c.down + d.down} }

// off is by how many octets two counts differ.
func (c counted) off(d counted) uint64 {
	return excess(c.up, d.up) + excess(d.up, c.up) + excess(c.down, d.down) + excess(d.down, c.down)
}

// excess is how much a is more than b.
func excess(a, b uint64) uint64 { return max(a, b) - b }

// accounts are what somebody has counted of each session, by its name.
type accounts map[string]counted

// sum is that of all sessions.
func (a accounts) sum() (all counted) {
	for _, one := range a {
		all = all.plus(one)
	}
	return all
}

// off is by how many octets the accounts of sessions differ. One that only one of them has differs by all of its.
func (a accounts) off(b accounts) (octets uint64) {
	for session, one := range a {
		octets += one.off(b[session])
	}
	for session, one := range b {
		if _, both := a[session]; !both {
			octets += one.off(counted{})
		}
	}
	return octets
}

// charged are the accounts by the charging records of a GGSN, of the sessions that have ended: a session has
// one record or more, and of one that a kill has ended there is no last one. What is charged for twice shows in
// the sum.
func charged(path string) (accounts, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ended, open := accounts{}, accounts{}
	for lines := json.NewDecoder(file); ; {
		var one ggsnrole.Charge
		if err := lines.Decode(&one); errors.Is(err, io.EOF) {
			return ended, nil
		} else if err != nil {
			return nil, err
		}
		has := counted{one.UpOctets, one.DownOctets}
		if volumes := volumesOf(&one); volumes != has {
			return nil, fmt.Errorf("charging record %d has %v, and its volumes %v", one.LocalNumber, has, volumes)
		}
		open[one.Session] = open[one.Session].plus(has)
		if one.Ended() {
			ended[one.Session] = ended[one.Session].plus(open[one.Session])
			delete(open, one.Session)
		}
	}
}

// volumesOf are the octets of the volumes of a charging record.
func volumesOf(one *ggsnrole.Charge) (sum counted) {
	for _, v := range one.Volumes {
		sum = sum.plus(counted{v.UpOctets, v.DownOctets})
	}
	return sum
}
