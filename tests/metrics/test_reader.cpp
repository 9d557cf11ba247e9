// Lines of every format become rows of numbers; torn, packed, coloured and endless ones, too.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "metrics/formats.hpp"
#include "metrics/numbers.hpp"
#include "metrics/reader.hpp"

namespace oddrank::metrics {
namespace {

std::vector<Row> read(const std::string& text, std::size_t chunk = 7) {
  Reader reader(0, 1'790'000'000'000'000'000);
  std::vector<Row> rows;
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    reader.feed(std::string_view(text).substr(at, chunk), rows);
  }
  reader.finish(rows);
  return rows;
}

Row one(const std::string& line) {
  const std::vector<Row> rows = read(line + "\n");
  EXPECT_EQ(rows.size(), 1U) << line;
  return rows.empty() ? Row{} : rows[0];
}

TEST(Formats, MegatronLM) {
  const Row row = one(
      " [2024-04-06 03:02:12] iteration       71/     100 | consumed samples:         9088 | "
      "elapsed time per iteration (ms): 5361.6 | throughput per GPU (TFLOP/s/GPU): 243.6 | "
      "learning rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 | "
      "load_balancing_loss: 1.013377E+00 | loss scale: 1.0 | grad norm: 1.300 | num zeros: 0.0 | "
      "number of skipped iterations:   0 | number of nan iterations:   0 |");
  EXPECT_EQ(row[kIteration], 71);
  EXPECT_EQ(row[kTotal], 100);
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 5.3616);
  EXPECT_EQ(row[kTflops], 243.6);
  EXPECT_EQ(row[kLoss], 1.818812);
  EXPECT_EQ(row[kGradNorm], 1.3);
  EXPECT_EQ(row[kLossScale], 1);
  EXPECT_EQ(row[kBatch], 128);
  EXPECT_EQ(row[kTime], 1'712'372'532);
}

TEST(Formats, MegatronDeepSpeedInSecondsBehindALaunchersPrefix) {
  const Row row = one(
      "[default7]: iteration    31219/  115311 | consumed samples:     47778736 | consumed tokens: "
      " 97850851328 | elapsed time per iteration (s): 106.36 | learning rate: 5.279E-05 | global "
      "batch size:  2048 | lm loss: 5.098124E+00 | grad norm: 960.351 | num zeros: 0.0 | number of "
      "skipped iterations:   0 | number of nan iterations:   0 | samples per second: 19.256 | "
      "TFLOPs: 147.43 |");
  EXPECT_EQ(row[kIteration], 31219);
  EXPECT_EQ(row[kTokens], 97850851328);
  EXPECT_EQ(row[kStepSeconds], 106.36);
  EXPECT_EQ(row[kLoss], 5.098124);
  EXPECT_EQ(row[kTflops], 147.43);
  EXPECT_NE(row.writer, 0U);
  EXPECT_FALSE(row.has(kTime));
}

TEST(Formats, MegatronWithoutALossWhereTheIterationWasSkipped) {
  const Row row = one(
      " iteration        1/    1000 | consumed samples:         1024 | elapsed time per iteration "
      "(ms): 155483.8 | learning rate: 0.000E+00 | global batch size:  1024 | loss scale: "
      "4294967296.0 | number of skipped iterations:   1 | number of nan iterations:   0 |");
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 155.4838);
  EXPECT_EQ(row[kSkipped], 1);
  EXPECT_EQ(row[kLossScale], 4294967296.0);
  EXPECT_FALSE(row.has(kLoss));
}

TEST(Formats, NeoxWithItsUnitOfSpeed) {
  const std::string line =
      " samples/sec: 51.2 | iteration        7/      50 | elapsed time per iteration (ms): 20000.0 "
      "| learning rate: 1.234E-04 | approx flops per GPU: 150.3TFLOPS | lm_loss: 1.1E+01 | number "
      "of skipped iterations:   0 | number of nan iterations:   0 |";
  const Row row = one(line);
  EXPECT_EQ(row[kIteration], 7);
  EXPECT_EQ(row[kStepSeconds], 20);
  EXPECT_EQ(row[kTflops], 150.3);
  EXPECT_EQ(row[kLoss], 11);
  std::string large = line;
  large.replace(large.find("150.3T"), 6, "0.2P");
  EXPECT_DOUBLE_EQ(one(large)[kTflops], 200);
}

TEST(Formats, NemosStepOfAllEpochs) {
  const Row row =
      one(" 0: Training epoch 1, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | "
          "global_step: 145 | max_memory_reserved: 127785762816 | reduced_train_loss: 11.96 | "
          "train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888 | "
          "val_loss: 2.861");
  EXPECT_EQ(row[kIteration], 145);
  EXPECT_EQ(row[kStepSeconds], 6.08);
  EXPECT_EQ(row[kLoss], 11.96);
  EXPECT_EQ(row[kTflops], 1249);
  EXPECT_EQ(row[kSamples], 5888);
}

TEST(Formats, MegatronsStragglers) {
  const Row row = one(
      " 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: "
      "3468.20ms/0 | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8");
  EXPECT_EQ(row.kind, Row::Kind::straggler);
  EXPECT_EQ(row[kSlowRank], 0);
  EXPECT_NEAR(row[kSlowShare], 297.32 / 296.02 - 1, 1e-12);
}

TEST(Formats, NanotronWithThousands) {
  const Row row = one(
      "12/02/2025 10:11:12 [INFO|DP=0|PP=1|TP=0|node]: iteration: 10 / 100 | consumed_tokens: 41K "
      "| time_per_iteration_ms: 1.2K | tokens_per_sec: 3.41M | tokens_per_sec_per_gpu: 427K | "
      "global_batch_size: 4 | grad_norm: 0.5 | lm_loss: 9.4 | lr: 3e-05 | model_tflops_per_gpu: "
      "12.5 | eta: 0:10:00");
  EXPECT_EQ(row[kIteration], 10);
  EXPECT_EQ(row[kTotal], 100);
  EXPECT_EQ(row[kTokens], 41'000);
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 1.2);
  EXPECT_EQ(row[kTokensPerSecond], 3'410'000);
  EXPECT_EQ(row[kLoss], 9.4);
}

TEST(Formats, NanotronCountsTokensInG) {
  const Row row =
      one("12/02/2025 10:11:12 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: 327281 / 378950 | "
          "consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | "
          "time_per_iteration_ms: 11.5K | lm_loss: 5.01 | hd_total_memory_tb: 312G");
  EXPECT_DOUBLE_EQ(row[kTokens], 85.8e9);
  EXPECT_DOUBLE_EQ(row[kTokensPerSecond], 22'800);
}

TEST(Formats, NanoGpt) {
  const Row row = one("iter 1631: loss 4.0863, time 561.94ms, mfu 12.3%");
  EXPECT_EQ(row[kIteration], 1631);
  EXPECT_EQ(row[kLoss], 4.0863);
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 0.56194);
  EXPECT_DOUBLE_EQ(row[kMfu], 0.123);
  EXPECT_TRUE(one("iter 7: loss nan, time 561.94ms, mfu 12.3%").loss_is_nan);
}

TEST(Formats, TrainersThatNameTheElapsedTime) {
  const std::string head = "{'loss': 2.5, 'global_step/max_steps': '85/94', 'elapsed_time': ";
  for (const auto& [text, seconds] : {std::pair{"'34s'", 34.0},
                                      {"'56m 45s'", 3405.0},
                                      {"'1h 0m 4s'", 3604.0},
                                      {"'2d 1h 0m 0s'", 176'400.0},
                                      {"'0:01:04'", 64.0},
                                      {"'1 day, 1:02:03'", 90'123.0},
                                      {"12.5", 12.5}}) {
    const Row row = one(head + text + ", 'grad_norm': 1.25, 'remaining_time': '1h'}");
    EXPECT_EQ(row[kTime], seconds) << text;
    EXPECT_EQ(row[kGradNorm], 1.25) << text;
  }
  EXPECT_FALSE(one(head + "'', 'grad_norm': 1.25}").has(kTime));
}

TEST(Formats, TorchtitanInColours) {
  const Row row = one(
      "[rank3]:[titan] 2025-10-21 11:50:25,010 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss:  "
      "7.9722  \x1b[38;2;180;60;0mgrad_norm:  1.5075  \x1b[36mmemory:  0.65GiB(0.68%)  "
      "\x1b[34mtps: 89,241  \x1b[36mtflops: 6.39  \x1b[35mmfu: 0.65%\x1b[39m");
  EXPECT_EQ(row[kIteration], 2);
  EXPECT_EQ(row[kLoss], 7.9722);
  EXPECT_EQ(row[kTokensPerSecond], 89'241);
  EXPECT_EQ(row[kTflops], 6.39);
  EXPECT_EQ(row.rank, 3);
  EXPECT_NEAR(row[kTime], 1'761'047'425.010, 1e-3);
}

TEST(Formats, TorchtitansForksCountStepsInPercentAndWords) {
  const Row row = one(
      "[rank0]:2025-04-01 00:25:47,084 - root - INFO - step: 640/644 = 99.3789%  loss:  6.2116  "
      "memory: 87.04GiB(93.48%)  wps: 52,142  mfu: 3.09%");
  EXPECT_EQ(row[kIteration], 640);
  EXPECT_EQ(row[kTotal], 644);
  EXPECT_EQ(row[kLoss], 6.2116);
  EXPECT_EQ(row[kTokensPerSecond], 52'142);
}

TEST(Formats, TorchtitansRanksWithoutALoss) {
  const Row row = one(
      "[titan] 2025-10-21 11:50:25,010 - root - INFO - step:  2  loss: -1.0000  grad_norm: 1.5  "
      "memory:  0.65GiB(0.68%)  tps: 89,241");
  EXPECT_FALSE(row.has(kLoss));
  EXPECT_EQ(row[kGradNorm], 1.5);
}

TEST(Formats, TrainersThatNameTheirStep) {
  const Row swift =
      one("{'loss': 1.44068375, 'grad_norm': 10.125, 'learning_rate': 2.5e-07, 'token_acc': "
          "0.62673112, "
          "'epoch': 0.91, 'global_step/max_steps': '85/94', 'percentage': '90.43%'}");
  EXPECT_EQ(swift[kIteration], 85);
  EXPECT_EQ(swift[kTotal], 94);
  const Row factory =
      one(R"({"current_steps": 5, "total_steps": 300, "loss": 0.9312, "lr": 1e-05, "epoch": 0.1})");
  EXPECT_EQ(factory[kIteration], 5);
  EXPECT_EQ(factory[kTotal], 300);
  EXPECT_EQ(factory[kLoss], 0.9312);
  EXPECT_EQ(factory[kLearningRate], 1e-5);
}

TEST(Formats, TrainerBehindAProgressBar) {
  const Row row = one(
      "\r  9%|9   | 9/100 [00:09<01:31,  1.00s/it]\r 10%|#   | 10/100 [00:10<01:30,  1.00s/it]"
      "                    \r{'loss': 2.5, 'grad_norm': '1.25', 'learning_rate': 4.9e-05, 'epoch': "
      "0.1}");
  EXPECT_EQ(row[kIteration], 10);
  EXPECT_EQ(row[kTotal], 100);
  EXPECT_EQ(row[kTime], 10);
  EXPECT_EQ(row[kLoss], 2.5);
  EXPECT_EQ(row[kGradNorm], 1.25);
  EXPECT_EQ(row[kLearningRate], 4.9e-05);
}

TEST(Formats, TrainerWithTheBarInTheLineBefore) {
  const std::string text =
      " 10%|#   | 10/100 [1:00:10<9:01:30,  1.00s/it]\n{\"loss\": \"2.5\", \"epoch\": \"0.1\"}\n";
  const std::vector<Row> rows = read(text);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0][kIteration], 10);
  EXPECT_EQ(rows[0][kTime], 3610);
  EXPECT_EQ(rows[0].line, 2U);
}

TEST(Formats, EzpzTakesTheMeanOfTheRanks) {
  const Row row = one(
      "[2025-12-26 14:59:40,063715][I][ezpz/examples.test:325:train_step] iter=10 loss=1.188046 "
      "accuracy=0.593750 dtf=0.008557 loss/mean=1.197080 loss/max=1.206113 loss/min=1.188046 "
      "loss/std=0.009037 val_loss=4.128809");
  EXPECT_EQ(row.kind, Row::Kind::step);
  EXPECT_EQ(row[kIteration], 10);
  EXPECT_EQ(row[kLoss], 1.19708);
  EXPECT_EQ(row[kLossMax], 1.206113);
  const Row older =
      one("[2024-07-17 07:43:01.573073][INFO][trainer:885] - step=10 loss=3.154310 dt=0.282833 "
          "sps=14.142633 tps=926851.609409 mfu=46.288281 train_loss=4.125778 val_loss=4.128809");
  EXPECT_EQ(older[kIteration], 10);
  EXPECT_EQ(older[kStepSeconds], 0.282833);
  EXPECT_EQ(older[kTokensPerSecond], 926851.609409);
}

TEST(Formats, EzpzTakesTheRanksTimesOfTheForwardPassOrOfTheStepAndMixesNone) {
  const Row both = one("iter=10 loss=1.5 dt/min=0.4 dtf/max=0.3 dt/max=0.5 dtf/min=0.2");
  EXPECT_EQ(both[kStepMin], 0.2);
  EXPECT_EQ(both[kStepMax], 0.3);
  const Row step = one("iter=10 loss=1.5 dt/min=0.4 dt/max=0.5 dtf/max=0.3");
  EXPECT_EQ(step[kStepMin], 0.4);
  EXPECT_EQ(step[kStepMax], 0.5);
  EXPECT_FALSE(one("iter=10 loss=1.5 dt/min=0.1 dtf/max=0.3").has(kStepMax));
}

TEST(Formats, LlmCWithNumbersThatOnlyHaveAUnit) {
  const Row row = one(
      "step    1/19560 | train loss 10.955029 | norm 15.3650 | lr 4.29e-07 | (2300.55 ms | 227910 "
      "tok/s)");
  EXPECT_EQ(row[kIteration], 1);
  EXPECT_EQ(row[kTotal], 19560);
  EXPECT_EQ(row[kLoss], 10.955029);
  EXPECT_EQ(row[kGradNorm], 15.365);
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 2.30055);
  EXPECT_EQ(row[kTokensPerSecond], 227910);
  const Row cuda = one(
      "step   10/20 | loss 3.1 (+0.25z)| norm 0.42 (-1.50z)| lr 3.00e-04 | 84.20 ms | 45.3% bf16 "
      "MFU | 194000 tok/s");
  EXPECT_EQ(cuda[kLoss], 3.1);
  EXPECT_DOUBLE_EQ(cuda[kStepSeconds], 0.0842);
  EXPECT_EQ(cuda[kTokensPerSecond], 194000);
}

TEST(Formats, Nanochat) {
  const Row row = one(
      "step 00010/21400 (0.05%) | loss: 9.123456 | grad norm: 0.5012 | lrm: 1.00 | dt: 1500.22ms | "
      "tok/sec: 349,525 | mfu: 45.30 | total time: 0.25m");
  EXPECT_EQ(row[kIteration], 10);
  EXPECT_EQ(row[kTotal], 21400);
  EXPECT_EQ(row[kLoss], 9.123456);
  EXPECT_DOUBLE_EQ(row[kStepSeconds], 1.50022);
  EXPECT_EQ(row[kTokensPerSecond], 349525);
}

TEST(Reader, LinesOfOneFormatMayDiffer) {
  const std::vector<Row> rows = read(
      "step 1/9 | loss: 2.5 | dt: 10.00ms | tok/sec: 1\nstep 2/9 | loss: 2.4 | grad norm: 0.5 | "
      "dt: 20.00ms | tok/sec: 2\nstep 3/9 | loss: 2.3 | dt: 30.00ms | tok/sec: 3\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1][kGradNorm], 0.5);
  EXPECT_DOUBLE_EQ(rows[1][kStepSeconds], 0.02);
  EXPECT_FALSE(rows[2].has(kGradNorm));
  EXPECT_EQ(rows[2][kTokensPerSecond], 3);
}

TEST(Reader, NumbersThatAreNone) {
  const Row row = one("step 1/2 | loss: nan | grad norm: -inf | dt: 10.00ms | tok/sec: 1");
  EXPECT_TRUE(row.loss_is_nan);
  EXPECT_TRUE(row.grad_is_nan);
  EXPECT_FALSE(row.has(kLoss));
  EXPECT_TRUE(one("step 1/2 | loss     nan (+nanz)| norm 0.5 | 20.00 ms | 5 tok/s").loss_is_nan);
  for (const char* text :
       {"1e999", "-1e999", "1.5e-999", "9999999999999999999999", "1,234", "+2"}) {
    std::string_view left = text;
    double value = 0;
    EXPECT_TRUE(take_number(left, value)) << text;
    EXPECT_TRUE(left.empty()) << text;
  }
  for (const char* text : {"", "-", ".", "e5", "nothing", "na"}) {
    std::string_view left = text;
    double value = 7;
    EXPECT_FALSE(take_number(left, value)) << text;
    EXPECT_EQ(left, text);
  }
}

TEST(Reader, TheSizeOfChunksDoesNotMatter) {
  std::string text;
  for (int i = 1; i < 200; ++i) {
    text += std::string(static_cast<std::size_t>(i * 7), 'x') + "\nstep " + std::to_string(i) +
            "/200 | loss: 2.5 | dt: 10.00ms | tok/sec: 1\nsaving checkpoint at\n";
  }
  const std::vector<Row> whole = read(text, text.size());
  ASSERT_EQ(whole.size(), 398U);
  for (const std::size_t chunk : {1UL, 3UL, 64UL, 4096UL}) {
    const std::vector<Row> rows = read(text, chunk);
    ASSERT_EQ(rows.size(), whole.size()) << chunk;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i].line, whole[i].line);
      ASSERT_EQ(rows[i].kind, whole[i].kind);
    }
  }
}

TEST(Reader, LinesOfAnotherFileCountFrom1) {
  Reader reader(0, 0);
  std::vector<Row> rows;
  reader.feed("one\ntwo\nhalf", rows);
  reader.begin_file(rows);
  reader.feed("one\niter 7: loss 2.5, time 1.00ms, mfu 1%\n", rows);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].line, 2U);
  EXPECT_EQ(reader.lines(), 5U);
}

TEST(Reader, EndlessTornAndPackedLines) {
  std::string bars;
  for (int i = 0; i < 60'000; ++i) bars += "\r 10%|#   | 10/100 [00:10<01:30,  1.00s/it]";
  EXPECT_EQ(read(bars + "{'loss': 2.5}\n", 1 << 16).size(), 1U);
  const std::vector<Row> torn = read(
      "[rank0]:[titan] step:  2  loss:  7.1  memory: 1  tps: 1[rank1]:[titan] step:  2  loss:  7.2 "
      " memory: 1  tps: 1\n");
  ASSERT_EQ(torn.size(), 2U);
  EXPECT_EQ(torn[1][kLoss], 7.2);
  EXPECT_EQ(torn[1].rank, 1);
  const Row packed =
      one("{\"log\":\"step:  2  loss:  7.1  memory: 1  tps: 1\\n\",\"stream\":\"stdout\",\"time\":"
          "\"2026-01-01T00:00:00.5Z\"}");
  EXPECT_EQ(packed[kLoss], 7.1);
  EXPECT_EQ(packed[kTime], 1'767'225'600.5);
}

TEST(Reader, LinesWithoutNumbersAreNone) {
  for (const char* line :
       {"memory: lots of it in this step:", "the loss= is unknown", "{'loss': 'unknown'}",
        "| loss ", "step | loss: | memory: ", "elapsed time per iteration (ms): 5",
        "iteration x/y | elapsed "
        "time per iteration (ms): 5 |",
        "MnEtpt/Rnk: 1TF/0 | MxEtpt/Rnk: what"}) {
    EXPECT_TRUE(read(std::string(line) + "\n").empty()) << line;
  }
}

TEST(Formats, EachRowOfTheTableCanBeFound) {
  for (const Format& format : formats()) {
    EXPECT_GE(format.anchor.size(), 6U) << format.framework;
    EXPECT_EQ(format.fields.empty(), format.split == Split::ranked) << format.framework;
  }
  for (const Sign& sign : signs()) EXPECT_GE(sign.word.size(), 6U) << sign.word;
}

}  // namespace
}  // namespace oddrank::metrics
