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

// less is what c is more than d.
func (c counted) less(d counted) counted { return counted{c.up - d.up, c.down - d.down} }

// off is by how many octets two counts differ.
func (c counted) off(d counted) uint64 {
	return c.beyond(d) + d.beyond(c)
}

// beyond is by how many octets c is more than d.
func (c counted) beyond(d counted) uint64 { return excess(c.up, d.up) + excess(c.down, d.down) }

// excess is how much a is more than b.
func excess(a, b uint64) uint64 { return max(a, b) - b }

// accounts are what somebody has counted of each session, by its name.
type accounts map[string]counted

// sum is that of some sessions.
func (a accounts) sum(sessions []string) (all counted) {
	for _, one := range sessions {
		all = all.plus(a[one])
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

// charged are the accounts by the charging records of a GGSN. What is charged for twice shows in the sum.
func charged(path string) (accounts, error) {
	all := accounts{}
	return all, eachCharge(path, func(one *ggsnrole.Charge) {
		all[one.Session] = all[one.Session].plus(counted{one.UpOctets, one.DownOctets})
	})
}

// eachCharge calls f for each charging record of the sessions of a GGSN that have ended: a session has one record or
// more, and of one that a kill has ended there is no last one.
func eachCharge(path string, f func(*ggsnrole.Charge)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	open := map[string][]ggsnrole.Charge{}
	for lines := json.NewDecoder(file); ; {
		var one ggsnrole.Charge
		if err := lines.Decode(&one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		has := counted{one.UpOctets, one.DownOctets}
		if volumes := volumesOf(&one); volumes != has {
			return fmt.Errorf("charging record %d has %v, and its volumes %v", one.LocalNumber, has, volumes)
		}
		open[one.Session] = append(open[one.Session], one)
		if one.Ended() {
			for _, part := range open[one.Session] {
				f(&part)
			}
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
