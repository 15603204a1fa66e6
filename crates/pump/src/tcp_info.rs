//! The bytes of Linux's `struct tcp_info` (`include/uapi/linux/tcp.h`): asked for, and read and
//! written by offset.
//!
//! Its fields have never moved, and each kernel fills as many as it knows: missing bytes are read
//! as 0 and are not written. Fields that the engine does not know keep the kernel's values. The
//! names are those of [`TcpInfo`], which is to be read first.

use rustix::fd::AsFd;
use rustix::io::Errno;
use sojourn_proto::tcp::TcpInfo;
use sojourn_shm::sockopt;

/// The length of the structure as far as it is known here (bytes).
pub const LEN: usize = 248;

/// `tcpi_options`: TCP timestamps.
pub const TIMESTAMPS: u8 = 1;
/// `tcpi_options`: selective acknowledgements.
pub const SACK: u8 = 2;
/// `tcpi_options`: window scaling.
pub const WINDOW_SCALE: u8 = 4;
/// `tcpi_options`: explicit congestion notification.
pub const ECN: u8 = 8;
/// `tcpi_options`: timestamps in microseconds.
pub const MICROSECONDS: u8 = 64;

/// Offset of the two window scales, four bits each: the peer's in the lower ones.
const SCALES: usize = 6;
/// Offsets of two counts of 16 bits.
const TIMEOUTS: usize = 240;
const TIMEOUT_RECOVERIES: usize = 242;

/// Asks the kernel for the `TCP_INFO` of a socket (tcp(7)).
///
/// # Errors
/// Those of getsockopt(2).
pub fn of(socket: impl AsFd) -> Result<TcpInfo, Errno> {
    let mut bytes = [0; LEN];
    sockopt::option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(read(&bytes))
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|found| found.try_into().ok()).unwrap_or([0; N])
}

/// Writes as much of the value as there is room for: the kernel cuts a field as well.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let room = bytes.get_mut(at..).unwrap_or_default();
    let len = room.len().min(value.len());
    room[..len].copy_from_slice(&value[..len]);
}

macro_rules! fields {
    ($($name:ident: $kind:ty = $at:literal;)+) => {
        /// Reads the kernel's bytes.
        pub fn read(bytes: &[u8]) -> TcpInfo {
            let word = |at| u32::from(u16::from_ne_bytes(take(bytes, at)));
            let [scales] = take(bytes, SCALES);
            TcpInfo {
                $($name: <$kind>::from_ne_bytes(take(bytes, $at)),)+
                snd_wscale: scales & 0xf,
                rcv_wscale: scales >> 4,
                total_rto: word(TIMEOUTS),
                total_rto_recoveries: word(TIMEOUT_RECOVERIES),
            }
        }

        /// Puts the engine's values over the kernel's answer; `bytes` is as long as the answer.
        pub fn overlay(info: &TcpInfo, bytes: &mut [u8]) {
            // The kernel may have measured values that the engine has not.
            let before = read(bytes);
            let unknown = |own: u32, kernels| if own == 0 { kernels } else { own };
            let info = TcpInfo {
                rcv_rtt: unknown(info.rcv_rtt, before.rcv_rtt),
                rcv_space: unknown(info.rcv_space, before.rcv_space),
                ..*info
            };
            $(put(bytes, $at, &info.$name.to_ne_bytes());)+
            put(bytes, SCALES, &[info.snd_wscale & 0xf | info.rcv_wscale << 4]);
            let count = |value: u32| u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes();
            put(bytes, TIMEOUTS, &count(info.total_rto));
            put(bytes, TIMEOUT_RECOVERIES, &count(info.total_rto_recoveries));
        }
    };
}

fields! {
    state: u8 = 0;
    ca_state: u8 = 1;
    retransmits: u8 = 2;
    probes: u8 = 3;
    backoff: u8 = 4;
    options: u8 = 5;
    rto: u32 = 8;
    ato: u32 = 12;
    snd_mss: u32 = 16;
    rcv_mss: u32 = 20;
    unacked: u32 = 24;
    sacked: u32 = 28;
    lost: u32 = 32;
    retrans: u32 = 36;
    last_data_sent: u32 = 44;
    last_data_recv: u32 = 52;
    last_ack_recv: u32 = 56;
    pmtu: u32 = 60;
    rcv_ssthresh: u32 = 64;
    rtt: u32 = 68;
    rttvar: u32 = 72;
    snd_ssthresh: u32 = 76;
    snd_cwnd: u32 = 80;
    advmss: u32 = 84;
    reordering: u32 = 88;
    rcv_rtt: u32 = 92;
    rcv_space: u32 = 96;
    total_retrans: u32 = 100;
    pacing_rate: u64 = 104;
    max_pacing_rate: u64 = 112;
    bytes_acked: u64 = 120;
    bytes_received: u64 = 128;
    segs_out: u32 = 136;
    segs_in: u32 = 140;
    notsent_bytes: u32 = 144;
    min_rtt: u32 = 148;
    data_segs_in: u32 = 152;
    data_segs_out: u32 = 156;
    delivered: u32 = 192;
    delivered_ce: u32 = 196;
    bytes_sent: u64 = 200;
    bytes_retrans: u64 = 208;
    dsack_dups: u32 = 216;
    reord_seen: u32 = 220;
    rcv_ooopack: u32 = 224;
    snd_wnd: u32 = 228;
    rcv_wnd: u32 = 232;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TcpInfo {
        TcpInfo {
            state: 1,
            options: TIMESTAMPS | SACK,
            snd_wscale: 7,
            rcv_wscale: 9,
            rtt: 1234,
            rcv_rtt: 5,
            rcv_space: 6,
            bytes_acked: 1 << 40,
            total_rto: 3,
            total_rto_recoveries: 70_000,
            rcv_wnd: 99,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = [0xff; LEN];
        overlay(&sample(), &mut bytes);
        let read = read(&bytes);
        assert_eq!(read, TcpInfo { total_rto_recoveries: 65_535, ..sample() });
        // Not the engine's: `tcpi_delivery_rate` and `tcpi_total_rto_time`.
        assert_eq!(bytes[160..168], [0xff; 8]);
        assert_eq!(bytes[244..248], [0xff; 4]);
    }

    #[test]
    fn a_buffer_is_filled_as_far_as_it_goes() {
        let mut whole = [0; LEN];
        overlay(&sample(), &mut whole);
        for len in 0..LEN {
            let mut cut = [0; LEN];
            overlay(&sample(), &mut cut[..len]);
            assert_eq!(cut[..len], whole[..len], "{len}");
            assert_eq!(cut[len..], [0; LEN][len..], "{len}");
        }
    }

    #[test]
    fn what_the_engine_has_not_measured_stays() {
        let mut bytes = [0; LEN];
        overlay(&sample(), &mut bytes);
        overlay(&TcpInfo::default(), &mut bytes);
        let read = read(&bytes);
        assert_eq!((read.rcv_rtt, read.rcv_space, read.rtt), (5, 6, 0));
    }
}
