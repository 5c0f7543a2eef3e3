#!/usr/bin/env python3
"""A training step of tandem against TensorFlow's, alternately on the same machine; see rivals.py.

    bench/compare_tensorflow.py [--task TASK] [--model minilm|bert-base|bert-large] [--types f32,bf16] [--tcmalloc FILE] [--iomp FILE] [--lengths padded|squad|sst2] …

Run it with a Python that has tensorflow, tf-keras and transformers 4.57 (the last with TensorFlow models). TFBertForQuestionAnswering, or the class of --task, in graph mode, Adam with
clipping, the policy mixed_bfloat16 for bf16.
"""

import os

import rivals


def tensorflow_side(options):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tf_keras
    import transformers

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(42)
    if options.types == "bf16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = rivals.model_class(options, "TF")(rivals.config_of(options))
    optimizer = tf_keras.optimizers.Adam(rivals.LEARNING_RATE)
    batch = {name: tf.constant(value) for name, value in rivals.numpy_batch(options).items()}

    @tf.function
    def graph_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(model(batch, training=True).loss, tf.float32))
        gradients, _ = tf.clip_by_global_norm([tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)], 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    rivals.time_steps(options, lambda: graph_step().numpy(), [tf, transformers])


if __name__ == "__main__":
    options = rivals.parse(__doc__, ["tensorflow"])
    tensorflow_side(options) if options.side else rivals.compare(options, __file__)
