//! One file with several others in it: a ZIP archive whose members are stored as they are.
//!
//! Only what a bundle needs: members are written one after the other, none is compressed, none is over 4 GiB. Python runs such
//! an archive, and everything else opens it. Knows nothing of what is in the members.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use aws_lc_rs::digest::{Context, SHA256};

/// An archive that is being written.
pub(super) struct Archive {
    out: BufWriter<File>,
    written: u64,
    members: Vec<Member>,
    open: Option<OpenMember>,
}

/// A member that is whole.
pub(super) struct Member {
    pub(super) name: &'static str,
    /// SHA-256 in hexadecimal.
    pub(super) sha256: String,
    at: u32,
    size: u32,
    checksum: u32,
}

struct OpenMember {
    name: &'static str,
    at: u64,
    size: u64,
    checksum: u32,
    digest: Context,
}

/// What stands before the name of a member.
const HEADER: u64 = 30;

/// Where its checksum and sizes stand in that.
const SIZES: u64 = 14;

/// 1980-01-01: when something was written says nothing here.
const DAY: u16 = 0x21;

impl Archive {
    pub(super) fn new(file: File) -> Archive {
        Archive { out: BufWriter::new(file), written: 0, members: Vec::new(), open: None }
    }

    /// Begins a member; what was begun before is whole.
    pub(super) fn begin(&mut self, name: &'static str) -> io::Result<()> {
        self.end_member()?;
        let at = self.written;
        self.put(&header(name, 0, 0))?;
        self.put(name.as_bytes())?;
        let digest = Context::new(&SHA256);
        self.open = Some(OpenMember { name, at, size: 0, checksum: u32::MAX, digest });
        Ok(())
    }

    /// Adds to the member that was begun last.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)?;
        if let Some(open) = &mut self.open {
            open.size += bytes.len() as u64;
            open.checksum = bytes.iter().fold(open.checksum, |sum, byte| {
                let place = usize::from((sum as u8) ^ byte);
                CHECKSUMS.get(place).copied().unwrap_or_default() ^ (sum >> 8)
            });
            open.digest.update(bytes);
        }
        Ok(())
    }

    /// A whole member.
    pub(super) fn member(&mut self, name: &'static str, bytes: &[u8]) -> io::Result<()> {
        self.begin(name)?;
        self.add(bytes)
    }

    /// The members that are whole.
    pub(super) fn whole(&mut self) -> io::Result<&[Member]> {
        self.end_member()?;
        Ok(&self.members)
    }

    /// Writes the list of members, and everything to the disk.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.end_member()?;
        let begins = small(self.written)?;
        let mut list: Vec<u8> = Vec::new();
        for member in &self.members {
            list.extend([0x50, 0x4b, 1, 2, 20, 0]);
            list.extend(header(member.name, member.checksum, member.size).get(4..).unwrap_or_default());
            // No extra field, no comment, first disk, no attributes.
            list.extend([0; 10]);
            list.extend(member.at.to_le_bytes());
            list.extend(member.name.as_bytes());
        }
        let count = u16::try_from(self.members.len()).unwrap_or(u16::MAX).to_le_bytes();
        let size = small(list.len() as u64)?;
        list.extend([0x50, 0x4b, 5, 6, 0, 0, 0, 0]);
        list.extend(count);
        list.extend(count);
        list.extend(size.to_le_bytes());
        list.extend(begins.to_le_bytes());
        list.extend([0, 0]);
        self.put(&list)?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }

    fn end_member(&mut self) -> io::Result<()> {
        let Some(OpenMember { name, at, size, checksum, digest }) = self.open.take() else { return Ok(()) };
        let (at_small, size, checksum) = (small(at)?, small(size)?, !checksum);
        self.out.seek(SeekFrom::Start(at + SIZES))?;
        self.out.write_all(&[checksum, size, size].map(u32::to_le_bytes).concat())?;
        self.out.seek(SeekFrom::Start(self.written))?;
        let sha256 = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.members.push(Member { name, sha256, at: at_small, size, checksum });
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn header(name: &str, checksum: u32, size: u32) -> Vec<u8> {
    // Version 2.0, names in UTF-8, stored, no time.
    let mut bytes: Vec<u8> = vec![0x50, 0x4b, 3, 4, 20, 0, 0, 8, 0, 0, 0, 0];
    bytes.extend(DAY.to_le_bytes());
    bytes.extend([checksum, size, size].map(u32::to_le_bytes).concat());
    bytes.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend([0, 0]);
    debug_assert_eq!(bytes.len() as u64, HEADER, "the size of a header");
    bytes
}

/// What has to be below 4 GiB.
fn small(size: u64) -> io::Result<u32> {
    let too_large =
        "a bundle has at most 4 GiB; write one of a single run with --run, or use `standfast audit export`";
    u32::try_from(size).map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, too_large))
}

/// CRC-32 of every byte.
const CHECKSUMS: [u32; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
            bit += 1;
        }
        all[byte] = sum;
        byte += 1;
    }
    all
};
